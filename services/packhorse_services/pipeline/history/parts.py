"""Clears of a part of a subtree: which is the last one that covers a path.

A bulk distribution clears its deep path part by part. The parts of one deep path are made into
pieces that do not overlap, each with its highest offset, so that a path is looked up by halving.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush

from packhorse.content.node import ROOT, parent_of

NOWHERE = -1
_END = "0"
"""Sorts behind every path, which begins with a slash."""

Part = tuple[str, str, int]
"""From, to, offset; an empty `to` is the end."""


class Parts:
    """Looks up by path. Memory: three texts or so for each distinct part."""

    def __init__(self, clears: Iterable[tuple[str, str, str, int]]) -> None:
        """Take the clears of parts: deep path, from, to, offset."""
        newest: dict[tuple[str, str, str], int] = {}
        for path, low, high, offset in clears:
            part = (path, low, high)
            newest[part] = max(offset, newest.get(part, NOWHERE))
        of_path: dict[str, list[Part]] = defaultdict(list)
        for (path, low, high), offset in newest.items():
            of_path[path].append((low, high, offset))
        self._pieces = {path: _pieces(parts) for path, parts in of_path.items()}

    def __len__(self) -> int:
        """Return of how many deep paths there are parts."""
        return len(self._pieces)

    def last_clear(self, path: str) -> int:
        """Return the highest offset of a part that covers `path`, or `NOWHERE`."""
        last, above = NOWHERE, path
        while True:
            if pieces := self._pieces.get(above):
                starts, offsets = pieces
                at = bisect_right(starts, path) - 1
                last = max(last, offsets[at] if at >= 0 else NOWHERE)
            if above == ROOT:
                return last
            above = parent_of(above)


def _pieces(parts: Iterable[Part]) -> tuple[list[str], list[int]]:
    """Return where pieces begin, in order, and the highest offset that covers each."""
    waiting = sorted((low, high or _END, offset) for low, high, offset in parts)
    edges = sorted({edge for low, high, _ in waiting for edge in (low, high)})
    open_parts: list[tuple[int, str]] = []
    offsets, at = [], 0
    for edge in edges:
        while at < len(waiting) and waiting[at][0] <= edge:
            heappush(open_parts, (-waiting[at][2], waiting[at][1]))
            at += 1
        while open_parts and open_parts[0][1] <= edge:
            heappop(open_parts)
        offsets.append(-open_parts[0][0] if open_parts else NOWHERE)
    return edges, offsets
