"""What a subscriber takes of the content, and where it places that (R35).

Of the paths that it includes and excludes the nearest at or above a node decides. Without an
include everything is included. Of the paths that it maps the nearest at or above a node says where
the node lies here. A folder above what is left out, or mapped, may be there or not: an import makes
the folders above what it writes.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from packhorse.content.node import (
    MAX_PATH_BYTES,
    ROOT,
    InvalidPath,
    Node,
    ancestors_of,
    check_path,
    is_within,
    parent_of,
)
from packhorse.content.parts import SubtreePart
from packhorse.content.property_names import check_names, leaving_out, naming
from packhorse.packages.region import Region, check_mapping
from packhorse.packages.scope import covering, part_of
from packhorse.wire.actions import is_probe, notifies, removes
from packhorse.wire.messages import MAX_FILTER_BYTES, PackageEntry

_REMEMBERED = 1_024
"""Folders; each is a path of up to 2 KiB."""

_SURELY_SHORT = MAX_PATH_BYTES // 4
"""Characters, of up to 4 bytes each."""

_NEXT = "\x01"
"""Behind a path it is the first text that follows it; no path holds a control character."""


@dataclass(frozen=True)
class PathFilter:
    """Paths with all below them. Raises `InvalidPath` for what is none, and for no filter.

    These are the author's paths; `map_paths` has pairs of such a path and the subscriber's own.
    `exclude_properties` are names, of which one may end with a `*` for any rest.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    map_paths: tuple[tuple[str, str], ...] = ()
    exclude_properties: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        mapped = [path for pair in self.map_paths for path in pair]
        every = [check_path(path) for path in (*self.include, *self.exclude, *mapped)]
        check_names(self.exclude_properties)
        if both := sorted({*self.include} & {*self.exclude}):
            raise InvalidPath(f"{both[0]!r} is included and excluded; leave out one of them")
        every += self.exclude_properties
        if sum(len(text.encode()) for text in every) > MAX_FILTER_BYTES:
            raise InvalidPath(
                f"the paths and names of a filter have at most {MAX_FILTER_BYTES} bytes together"
            )
        if mapped:
            check_mapping(self.map_paths, self._tops_unmapped)

    def _tops_unmapped(self, path: str) -> tuple[str, ...]:
        return self._by_source[ROOT].rules.tops(path)

    @cached_property
    def _rules(self) -> dict[str, bool]:
        rules = {ROOT: not self.include}
        rules.update(dict.fromkeys(self.include, True))
        rules.update(dict.fromkeys(self.exclude, False))
        return rules

    @cached_property
    def _above_included(self) -> frozenset[str]:
        return frozenset(one for path in self.include for one in (ROOT, *ancestors_of(path)))

    @cached_property
    def holds_all(self) -> bool:
        """Whether it takes every node."""
        return all(self._rules.values())

    @cached_property
    def changes_nothing(self) -> bool:
        """Whether everything comes to the subscriber as the author has it."""
        return self.holds_all and not self.map_paths and not self.exclude_properties

    @cached_property
    def may_be_folders(self) -> frozenset[str]:
        """The paths above what is excluded or mapped: there a mere folder counts as nothing."""
        mapped = (path for pair in self.map_paths for path in pair)
        return frozenset(one for path in (*self.exclude, *mapped) for one in ancestors_of(path))

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """What is not mapped, then what lies below each mapped path."""
        if not self.map_paths:
            return (Region(ROOT, ROOT, self),)
        rules: dict[str, tuple[list[str], list[str]]] = {
            source: ([], []) for source in (ROOT, *dict(self.map_paths))
        }
        for kind, paths in enumerate((self.include, self.exclude)):
            for path in paths:
                rules[_nearest(path, rules)][kind].append(path)
        for source, _ in self.map_paths:
            rules[_nearest(parent_of(source), rules)][1].append(source)
            if self.holds(source):
                rules[source][0][:] = {*rules[source][0], source}
        if not self.include:
            rules[ROOT][0].append(ROOT)
        return tuple(
            Region(source, dict(self.map_paths).get(source, ROOT), _rules_of(*rules[source]))
            for source in rules
        )

    @cached_property
    def _by_source(self) -> dict[str, Region]:
        return {region.source: region for region in self.regions}

    @cached_property
    def _inside(self) -> dict[str, list[Region]]:
        """The regions below a path."""
        inside: dict[str, list[Region]] = {}
        for region in self.regions[1:]:
            for path in (ROOT, *ancestors_of(region.source)):
                inside.setdefault(path, []).append(region)
        return inside

    def regions_at(self, path: str) -> list[Region]:
        """Return the regions that have a part in the author's subtree of `path`."""
        region = self._by_source[_nearest(path, self._by_source)]
        return [region, *self._inside.get(path, ())]

    def own(self, path: str) -> str:
        """Return where a node of the author lies at the subscriber."""
        own = self._targets.get(path)
        if own is not None:
            return own
        cut, target = self._moved_in(path.rpartition("/")[0])
        return target + path[cut:]

    @cached_property
    def _targets(self) -> dict[str, str]:
        return dict(self.map_paths)

    @cached_property
    def _moved_in(self) -> Callable[[str], tuple[int, str]]:
        """Says which beginning the nodes in a folder lose, and which they get; remembered."""

        def moved(folder: str) -> tuple[int, str]:
            source = _nearest(folder or ROOT, self._by_source)
            return (0, "") if source == ROOT else (len(source), self._targets[source])

        return lru_cache(_REMEMBERED)(moved)

    def node(self, node: Node) -> Node:
        """Return a node as the subscriber has it. Raises `InvalidPath` and `InvalidNode`."""
        if self.exclude_properties:
            node = self._without(node)
        path = self.own(node.path) if self.map_paths else node.path
        if path == node.path:
            return node
        if len(path) > _SURELY_SHORT:
            check_path(path)
        return Node(path, node.type, node.properties, node.binaries)

    @cached_property
    def _without(self) -> Callable[[Node], Node]:
        return leaving_out(self.exclude_properties)

    @cached_property
    def leaves_out(self) -> Callable[[str], bool]:
        """Says of a property's name whether nodes lose it."""
        return naming(self.exclude_properties)

    @cached_property
    def spared(self) -> tuple[str, ...]:
        """Own paths that may stay where those above go."""
        return (*map(self.own, self.exclude), *self._targets.values())

    def rule_of(self, path: str) -> str:
        """Return the path of the rule that decides; `/` also where no rule names it."""
        return _nearest(path, self._rules)

    def holds(self, path: str) -> bool:
        """Return whether a node is taken."""
        own = self._rules.get(path)
        return self._held_in(path.rpartition("/")[0]) if own is None else own

    @cached_property
    def _held_in(self) -> Callable[[str], bool]:
        """Says what holds for nodes in a folder; remembered, for most come together."""
        return lru_cache(_REMEMBERED)(lambda folder: self._rules[self.rule_of(folder or ROOT)])

    def __reduce__(self) -> tuple[type["PathFilter"], tuple[object, ...]]:
        """Go to other processes as the paths and names alone."""
        return PathFilter, (self.include, self.exclude, self.map_paths, self.exclude_properties)

    def tops(self, path: str) -> tuple[str, ...]:
        """Return which subtrees, at or below `path`, have all in them that is taken there."""
        if self.holds(path):
            return (path,)
        if path not in self._above_included:
            return ()
        return tuple(covering(one for one in self.include if is_within(one, path)))

    def parts_of(self, part: SubtreePart) -> tuple[SubtreePart, ...]:
        """Return what of a part of a subtree is taken; `part` alone when that is all of it."""
        rules = [rule for rule in self._rules if rule != part.top and is_within(rule, part.top)]
        takes_top = self.holds(part.top)
        if takes_top and all(self._rules[rule] for rule in rules):
            return (part,)
        ranges = self._ranges(part, rules)
        holds_top = part.holds_top and takes_top
        if holds_top and not ranges:
            ranges.append((part.low, part.low))
        return tuple(
            SubtreePart(part.top, holds_top and number == 0, *bounds)
            for number, bounds in enumerate(ranges)
        )

    def _ranges(self, part: SubtreePart, rules: list[str]) -> list[tuple[str, str]]:
        """Return the ranges of paths, in order, of what is taken below the top of a part."""
        edges = {part.low, part.high}
        for rule in rules:  # the node itself, then what is below it: siblings lie between
            edges.update((rule, rule + _NEXT, rule + "/", rule + "0"))
        taken: list[tuple[str, str]] = []
        for low, high in pairwise(sorted(one for one in edges if part.low <= one <= part.high)):
            if self._holds_from(low):
                begin = taken.pop()[0] if taken and taken[-1][1] == low else low
                taken.append((begin, high))
        return taken

    def _holds_from(self, edge: str) -> bool:
        """Return whether what begins at an edge, and reaches to the next one, is taken."""
        return self.holds(edge if edge in self._rules else edge + _NEXT)

    def narrowed(self, entry: PackageEntry) -> PackageEntry:
        """Return a package that names what is taken of it, by own paths. Raises `InvalidPath`."""
        shallow, deep = entry.paths, entry.deep_paths
        for path in (*shallow, *deep):
            check_path(path)
        if removes(entry.action) or notifies(entry.action):  # both are about subtrees
            shallow, deep = (), (*shallow, *deep)
        return replace(
            entry,
            paths=tuple(self.own(path) for path in shallow if self.holds(path)),
            deep_paths=tuple(dict.fromkeys(top for path in deep for top in self.own_tops(path))),
        )

    def own_tops(self, path: str) -> list[str]:
        """Return which own subtrees have all in them that is taken at and below `path`."""
        return [top for region in self.regions_at(path) for top in region.own_tops(path)]

    def left_out(self, entry: PackageEntry) -> str:
        """Return why nothing of a package is taken, or an empty text.

        Raises `InvalidPath`, and `PackageRefused` for a range that is none.
        """
        named, part = (*entry.paths, *entry.deep_paths), part_of(entry)
        if not named or is_probe(entry.action) or self._takes_some(entry, part):
            return ""
        rule = self.rule_of(named[0] if part is None or part.holds_top else part.low)
        if rule in self.exclude:
            return f"PACKHORSE_EXCLUDE names {rule}"
        return "PACKHORSE_INCLUDE names nothing of it"

    def _takes_some(self, entry: PackageEntry, part: SubtreePart | None) -> bool:
        if part is not None:
            return bool(self.parts_of(part))
        if any(map(self.holds, (*entry.paths, *entry.deep_paths))):
            return True
        taken = self.narrowed(entry)
        return bool(taken.paths or taken.deep_paths)


def _nearest(path: str, among: Container[str]) -> str:
    """Return the nearest path at or above one that is among others; the root is."""
    while path not in among:
        path = parent_of(path)
    return path


def _rules_of(include: list[str], exclude: list[str]) -> PathFilter:
    """Return the filter that takes nothing but below `include`."""
    if not include:
        return PathFilter(exclude=(ROOT,))
    return PathFilter(tuple(include), tuple(exclude))


EVERYTHING = PathFilter()
"""Takes every node."""
