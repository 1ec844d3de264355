"""A part of the author's content that one mapping places: below a mapped path, or all others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from packhorse.content.node import ROOT, InvalidPath, ancestors_of, is_within
from packhorse.content.parts import SubtreePart


class Rules(Protocol):
    """What is taken, by the author's paths: a filter that maps nothing."""

    def holds(self, path: str) -> bool:
        """Return whether a node is taken."""

    def tops(self, path: str) -> tuple[str, ...]:
        """Return which subtrees, at or below `path`, have all in them that is taken there."""

    def parts_of(self, part: SubtreePart) -> tuple[SubtreePart, ...]:
        """Return what of a part of a subtree is taken; `part` alone when that is all of it."""


@dataclass(frozen=True, slots=True)
class Region:
    """What lies below `source` at the author and at `target` here; `rules` name what is taken.

    Paths and bounds of ranges keep their order, for only their beginning is another.
    """

    source: str
    target: str
    rules: Rules
    """By the author's paths, without the regions inside."""

    def own(self, path: str) -> str:
        """Return where a node of this region, or a bound inside it, lies at the subscriber."""
        return path if self.source == ROOT else self.target + path[len(self.source) :]

    def theirs(self, path: str) -> str:
        """Return where a node that lies here has its place at the author."""
        return path if self.source == ROOT else self.source + path[len(self.target) :]

    def top_in(self, path: str) -> str | None:
        """Return the top of what `path` and this region share, None for nothing."""
        if is_within(path, self.source):
            return path
        return self.source if is_within(self.source, path) else None

    def own_tops(self, path: str) -> list[str]:
        """Return which subtrees here have all in them that is taken at and below `path`."""
        top = self.top_in(path)
        return [] if top is None else [self.own(one) for one in self.rules.tops(top)]

    def own_part(self, part: SubtreePart) -> SubtreePart:
        """Return a part of this region as it lies at the subscriber."""
        return SubtreePart(self.own(part.top), part.holds_top, *map(self.own, _bounds(part)))

    def their_part(self, part: SubtreePart) -> SubtreePart:
        """Return a part of what lies at the subscriber as it lies at the author."""
        return SubtreePart(self.theirs(part.top), part.holds_top, *map(self.theirs, _bounds(part)))

    def taken(self, part: SubtreePart) -> tuple[SubtreePart, ...]:
        """Return what is taken of the author's `part`, by the author's paths."""
        if is_within(part.top, self.source):
            return self.rules.parts_of(part)
        if not is_within(self.source, part.top):
            return ()
        whole = SubtreePart.whole(self.source)
        inside = SubtreePart(
            self.source,
            part.holds(self.source),
            min(max(whole.low, part.low), whole.high),
            max(min(whole.high, part.high), whole.low),
        )
        empty = inside.low >= inside.high and not inside.holds_top
        return () if empty else self.rules.parts_of(inside)


def _bounds(part: SubtreePart) -> tuple[str, str]:
    return part.low, part.high


def check_mapping(
    pairs: Sequence[tuple[str, str]], unmapped: Callable[[str], Sequence[str]]
) -> None:
    """Raise `InvalidPath` where two nodes of the author could come to one place.

    `unmapped` says what is taken at and below a path, of the content that is not mapped.
    """
    sources, targets = {source for source, _ in pairs}, sorted(target for _, target in pairs)
    if ROOT in sources or ROOT in targets:
        raise InvalidPath("/ is not mapped, and nothing is mapped onto it; name a path below")
    if len(sources) < len(targets):
        raise InvalidPath("a path is mapped twice; leave out one of them")
    held = set(targets)
    for number, target in enumerate(targets):
        if target in targets[:number] or not held.isdisjoint(ancestors_of(target)):
            raise InvalidPath(f"two paths are mapped onto {target[:80]!r}, or onto a path above it")
        if unmapped(target):
            raise InvalidPath(
                f"the author's own {target[:80]!r} would come to where another path is mapped; "
                "exclude it, or map it too"
            )


@dataclass(frozen=True, slots=True)
class SharedRegion:
    """What one region of each of some filters has in common, at and below `top` of the author."""

    top: str
    regions: tuple[Region, ...]

    def holds(self, path: str) -> bool:
        """Return whether a node of the author, at or below the top, is taken by all."""
        return all(region.rules.holds(path) for region in self.regions)


class Regions(Protocol):
    """What a filter makes of the author's content."""

    def regions_at(self, path: str) -> list[Region]:
        """Return the regions that have a part in the author's subtree of `path`."""


def shared_regions(filters: Sequence[Regions], path: str) -> list[SharedRegion]:
    """Return what is taken by all the filters at and below `path`, by where they place it."""
    found: list[SharedRegion] = []
    for regions in product(*(one.regions_at(path) for one in filters)):
        top: str | None = path
        for region in regions:
            top = None if top is None else region.top_in(top)
        if top is not None and all(region.rules.tops(top) for region in regions):
            found.append(SharedRegion(top, regions))
    return found
