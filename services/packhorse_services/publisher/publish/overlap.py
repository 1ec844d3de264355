"""Whether two packages carry state of the same paths, so that their order matters (R6)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from packhorse.content.parts import SubtreePart
from packhorse.packages.scope import PathScope, part_of
from packhorse.wire.actions import touched
from packhorse.wire.messages import PackageEntry

Run = tuple[str, str]
"""All paths that are >= the first and < the second."""


class Footprint:
    """The paths whose state a package carries: single nodes, and all paths of some runs.

    A subtree, or a part of one, is its top and one run of paths (`SubtreePart`); the runs of one
    package are apart, since no deep path lies below another one.
    """

    def __init__(self, entry: PackageEntry) -> None:
        """Raise `InvalidPath` for a path that is none, `PackageRefused` for such a range."""
        scope, part = PathScope(*touched(entry)), part_of(entry)
        parts = [part] if part else [SubtreePart.whole(path) for path in scope.deep]
        tops = [one.top for one in parts if one.holds_top]
        self._nodes = sorted((*scope.shallow, *tops))
        runs = sorted((one.low, one.high) for one in parts)
        self._lows, self._highs = [low for low, _ in runs], [high for _, high in runs]

    def overlaps(self, other: "Footprint") -> bool:
        """Return whether some path is in both; a folder that is only created counts for nothing.

        O(log n) for each path of `other`.
        """
        return self.overlaps_any(other._nodes, other._runs())

    def overlaps_any(self, nodes: Iterable[str], runs: Iterable[Run]) -> bool:
        """Return whether one of `nodes`, or a path that may be in one of `runs`, is in it too."""
        return any(map(self._holds, nodes)) or any(self._reaches_into(*run) for run in runs)

    def shared_with(self, other: "Footprint") -> tuple[list[str], list[Run]]:
        """Return those of its nodes and runs that overlap `other`."""
        nodes = [node for node in self._nodes if other._holds(node)]
        return nodes, [run for run in self._runs() if other._reaches_into(*run)]

    def _runs(self) -> Iterable[Run]:
        return zip(self._lows, self._highs, strict=True)

    def _holds(self, path: str) -> bool:
        at = bisect_left(self._nodes, path)
        if at < len(self._nodes) and self._nodes[at] == path:
            return True
        run = bisect_right(self._lows, path) - 1
        return run >= 0 and path < self._highs[run]

    def _reaches_into(self, low: str, high: str) -> bool:
        """Return whether a path of this package may be >= `low` and < `high`."""
        at = bisect_left(self._nodes, low)
        if at < len(self._nodes) and self._nodes[at] < high:
            return True
        run = bisect_left(self._lows, high) - 1
        return run >= 0 and low < self._highs[run]
