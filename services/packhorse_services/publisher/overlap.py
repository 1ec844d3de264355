"""Whether two packages carry state of the same paths, so that their order matters (R6)."""

from bisect import bisect_left

from packhorse.content.node import ROOT, subtree_range
from packhorse.packages.scope import Scope
from packhorse.wire.messages import Action, PackageEntry


class Footprint:
    """The paths whose state a package carries: single nodes, and subtrees as a whole."""

    def __init__(self, entry: PackageEntry) -> None:
        """Raise `InvalidPath` for a path that is none."""
        paths, subtrees = entry.paths, entry.deep_paths
        if entry.action is Action.DELETE:
            paths, subtrees = (), (*paths, *subtrees)
        elif entry.action is not Action.ADD:
            paths, subtrees = (), ()
        self._scope = Scope(paths, subtrees)
        self._nodes = frozenset(self._scope.shallow)
        self._all = sorted((*self._scope.shallow, *self._scope.deep))

    def overlaps(self, other: "Footprint") -> bool:
        """Tell whether some path is in both; a folder that is only created counts for nothing.

        O(log n) for each path of `other`.
        """
        return any(self._holds(path) for path in other._all) or any(
            self._reaches_into(subtree) for subtree in other._scope.deep
        )

    def _holds(self, path: str) -> bool:
        return path in self._nodes or self._scope.deep_path_of(path) is not None

    def _reaches_into(self, subtree: str) -> bool:
        """Tell whether a path of this package lies below `subtree`."""
        if subtree == ROOT:
            return bool(self._all)
        low, high = subtree_range(subtree)
        first = bisect_left(self._all, low)
        return first < len(self._all) and self._all[first] < high
