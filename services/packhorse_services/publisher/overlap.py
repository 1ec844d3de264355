"""Whether two packages carry state of the same paths, so that their order matters (R6)."""

from bisect import bisect_left, bisect_right

from packhorse.content.parts import SubtreePart
from packhorse.packages.scope import Scope, part_of
from packhorse.wire.messages import Action, PackageEntry


class Footprint:
    """The paths whose state a package carries: single nodes, and all paths of some runs.

    A subtree, or a part of one, is its top and one run of paths (`SubtreePart`); the runs of one
    package are apart, since no deep path lies below another one.
    """

    def __init__(self, entry: PackageEntry) -> None:
        """Raise `InvalidPath` for a path that is none, `PackageRefused` for such a range."""
        paths, subtrees = entry.paths, entry.deep_paths
        if entry.action is Action.DELETE:
            paths, subtrees = (), (*paths, *subtrees)
        elif entry.action is not Action.ADD:
            paths, subtrees = (), ()
        scope, part = Scope(paths, subtrees), part_of(entry)
        parts = [part] if part else [SubtreePart.whole(path) for path in scope.deep]
        tops = [one.top for one in parts if one.holds_top]
        self._nodes = sorted((*scope.shallow, *tops))
        runs = sorted((one.low, one.high) for one in parts)
        self._lows, self._highs = [low for low, _ in runs], [high for _, high in runs]

    def overlaps(self, other: "Footprint") -> bool:
        """Tell whether some path is in both; a folder that is only created counts for nothing.

        O(log n) for each path of `other`.
        """
        return any(self._holds(node) for node in other._nodes) or any(
            map(self._reaches_into, other._lows, other._highs)
        )

    def _holds(self, path: str) -> bool:
        at = bisect_left(self._nodes, path)
        if at < len(self._nodes) and self._nodes[at] == path:
            return True
        run = bisect_right(self._lows, path) - 1
        return run >= 0 and path < self._highs[run]

    def _reaches_into(self, low: str, high: str) -> bool:
        """Tell whether a path of this package may be >= `low` and < `high`."""
        at = bisect_left(self._nodes, low)
        if at < len(self._nodes) and self._nodes[at] < high:
            return True
        run = bisect_left(self._lows, high) - 1
        return run >= 0 and low < self._highs[run]
