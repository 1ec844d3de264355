"""Where a subtree is cut into parts: pure, and with nothing in memory but the part at hand."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from psycopg import sql

from packhorse.content.parts import SubtreePart


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A range of a subtree's paths, and how many nodes the snapshot has in it."""

    number: int
    range_from: str
    """Empty: from the beginning, which is the node of the deep path itself."""
    range_to: str
    """Not in it; empty: to the end."""
    nodes: int

    def within(self, deep_path: str) -> SubtreePart:
        """Return the part of the subtree that it is."""
        return SubtreePart.between(deep_path, self.range_from, self.range_to)


def cut(
    sizes: Iterable[tuple[str, int]], *, part_nodes: int, part_bytes: int
) -> Iterator[PlannedPart]:
    """Yield the parts of a subtree whose nodes, in path order, have these sizes in bytes.

    Each has at most `part_nodes` nodes and `part_bytes` bytes, or a single larger node. Together
    they are all of the subtree: the first one's range and the last one's are open.
    """
    number, start, nodes, size = 0, "", 0, 0
    for path, length in sizes:
        if nodes and (nodes == part_nodes or size + length > part_bytes):
            yield PlannedPart(number, start, path, nodes)
            number, start, nodes, size = number + 1, path, 0, 0
        nodes += 1
        size += length
    if nodes:
        yield PlannedPart(number, start, "", nodes)


def condition(part: SubtreePart) -> sql.Composed:
    """Return the SQL condition that holds for the paths in `part`; they compare by bytes."""
    below = sql.SQL("path >= {} AND path < {}").format(part.low, part.high)
    if not part.holds_top:
        return below
    return sql.SQL("path = {} OR ({})").format(part.top, below)
