"""Which nodes a subscriber takes: paths that it includes and paths that it excludes (R35).

The nearest rule at or above a node decides. Without an include everything is included. A folder
above what is left out may be there or not: an import makes the folders above what it writes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from packhorse.content.node import ROOT, InvalidPath, ancestors_of, check_path, is_within, parent_of
from packhorse.content.parts import SubtreePart
from packhorse.packages.scope import covering, part_of
from packhorse.wire.actions import is_probe, removes
from packhorse.wire.messages import MAX_FILTER_BYTES, PackageEntry

_REMEMBERED = 1_024
"""Folders; each is a path of up to 2 KiB."""

_NEXT = "\x01"
"""Behind a path it is the first text that follows it; no path holds a control character."""


@dataclass(frozen=True)
class PathFilter:
    """Paths with all below them. Raises `InvalidPath` for what is none, and for no filter."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        every = [check_path(path) for path in (*self.include, *self.exclude)]
        if both := sorted({*self.include} & {*self.exclude}):
            raise InvalidPath(f"{both[0]!r} is included and excluded; leave out one of them")
        if sum(len(path.encode()) for path in every) > MAX_FILTER_BYTES:
            raise InvalidPath(
                f"the paths of a filter have at most {MAX_FILTER_BYTES} bytes together"
            )

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
        """Whether it leaves out nothing."""
        return all(self._rules.values())

    @cached_property
    def may_be_folders(self) -> frozenset[str]:
        """The paths above what is excluded: there a mere folder counts as nothing."""
        return frozenset(one for path in self.exclude for one in ancestors_of(path))

    def rule_of(self, path: str) -> str:
        """Return the path of the rule that decides; `/` also where no rule names it."""
        rules = self._rules
        while path not in rules:
            path = parent_of(path)
        return path

    def holds(self, path: str) -> bool:
        """Return whether a node is taken."""
        own = self._rules.get(path)
        return self._held_in(path.rpartition("/")[0]) if own is None else own

    @cached_property
    def _held_in(self) -> Callable[[str], bool]:
        """Says what holds for nodes in a folder; remembered, for most come together."""
        return lru_cache(_REMEMBERED)(lambda folder: self._rules[self.rule_of(folder or ROOT)])

    def __reduce__(self) -> tuple[type["PathFilter"], tuple[tuple[str, ...], ...]]:
        """Go to other processes as the paths alone."""
        return PathFilter, (self.include, self.exclude)

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
        """Return what of the paths of a package is taken. Raises `InvalidPath`."""
        shallow, deep = entry.paths, entry.deep_paths
        for path in (*shallow, *deep):
            check_path(path)
        if removes(entry.action):
            shallow, deep = (), (*shallow, *deep)
        return replace(
            entry,
            paths=tuple(path for path in shallow if self.holds(path)),
            deep_paths=tuple(dict.fromkeys(top for path in deep for top in self.tops(path))),
        )

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


EVERYTHING = PathFilter()
"""Takes every node."""
