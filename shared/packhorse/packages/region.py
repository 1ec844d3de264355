"""A part of the author's content that one mapping places: below a mapped path, or all others."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from packhorse.content.node import ROOT, is_within
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
