"""Changes merged into a stored part, frame by frame; no Spark.

Frames without changes are passed on as they are stored, several at a time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from packhorse.blobs.api import BlobStore
from packhorse.blobs.digest import Verified
from packhorse.packages.format import decoded
from packhorse.snapshots.parts import Pieces, nodes_of, read_part, stored_frames
from packhorse.snapshots.snapshot import Part
from packhorse_services.pipeline.history.node_lists import (
    ROWS,
    ListedFrame,
    ListedNode,
    listed,
    listed_frames,
    measured,
)

_MOST_TOGETHER = 1024 * 1024
"""Frames without changes are passed on in pieces of at most so many stored bytes."""


class Change(NamedTuple):
    """What is at a path now; None: nothing any more."""

    path: str
    now: ListedNode | None


class Changes:
    """Changes in path order, of which those up to a path are taken."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._rest = iter(changes)
        self.next = next(self._rest, None)

    def before(self, path: str | None) -> Iterator[Change]:
        """Take those at smaller paths; all when there is no path."""
        while self.next is not None and (path is None or self.next.path < path):
            change, self.next = self.next, next(self._rest, None)
            yield change


def merged(before: Iterable[ListedNode], changes: Iterable[Change]) -> Iterator[ListedNode]:
    """Yield what nodes are after changes; both come in path order, each path once."""
    waiting = Changes(changes)
    for one in before:
        yield from (change.now for change in waiting.before(one.node.path) if change.now)
        change = waiting.next
        if change is None or change.path != one.node.path:
            yield one
    yield from (change.now for change in waiting.before(None) if change.now)


def after_changes(
    part: Part, changes: Changes, blobs: BlobStore, frame_bytes: int, together: int
) -> Iterator[ListedFrame]:
    """Yield what a part holds after changes, up to `together` frames without changes as one.

    Without its list all of it is packed anew.
    """
    rows = listed(part, blobs)
    if not rows:
        nodes = map(measured, read_part(part, blobs))
        yield from listed_frames(merged(nodes, changes.before(None)), frame_bytes)
        return
    frames = StoredFrames(part, rows, blobs)
    while frames.left:
        if untouched := frames.before(changes.next.path if changes.next else None):
            yield frames.take(min(untouched, together, frames.within(_MOST_TOGETHER)))
        else:
            one = frames.take(1)
            after = merged(_nodes(one), changes.before(frames.next_path))
            yield from listed_frames(after, frame_bytes)
    frames.end()


class StoredFrames:
    """The frames of a part as they are stored, taken one behind the other; memory is bounded."""

    def __init__(self, part: Part, rows: pa.Table, blobs: BlobStore) -> None:
        """Begin with the first, where `rows` is the list of the part's nodes."""
        found = pc.run_end_encode(rows["end"].combine_chunks())
        self._ends = [0, *found.values.to_pylist()]
        self._stops = [0, *found.run_ends.to_pylist()]
        self._rows = rows
        self._paths = rows["path"].take(pa.array(self._stops[:-1], pa.int64())).to_pylist()
        self._stored = Pieces(Verified(blobs.get(part.key), sha256=part.sha256, length=part.length))
        self._at = 0

    @property
    def left(self) -> int:
        """How many have not been taken."""
        return len(self._paths) - self._at

    @property
    def next_path(self) -> str | None:
        """The first path of the next one; None when there is none left."""
        return self._paths[self._at] if self.left else None

    def before(self, path: str | None) -> int:
        """Return how many come before the one that has, or would have, this path."""
        if path is None:
            return self.left
        return max(0, bisect_right(self._paths, path, self._at) - 1 - self._at)

    def within(self, length: int) -> int:
        """Return how many of the next ones are no longer than that together, one at least."""
        stop = bisect_right(self._ends, self._ends[self._at] + length, self._at) - 1
        return max(1, stop - self._at)

    def take(self, count: int) -> ListedFrame:
        """Take so many. Raises `PackageCorrupt` when a piece of the part is no frame."""
        start, stop = self._at, self._at + count
        self._at = stop
        lengths = [self._ends[at + 1] - self._ends[at] for at in range(start, stop)]
        data = self._stored.take(sum(lengths))
        rows = self._rows[self._stops[start] : self._stops[stop]]
        frame = stored_frames(data, lengths, rows.num_rows)
        return ListedFrame(frame, rows, self._ends[start])

    def end(self) -> None:
        """Raise `BlobCorrupt` when the part is not as it was promised."""
        self._stored.end()


def _nodes(one: ListedFrame) -> Iterator[ListedNode]:
    """Yield the nodes of a frame with their numbers, which are listed or made anew."""
    columns = (one.rows[name].to_pylist() for name in ROWS.names)
    for node, path, size, number in zip(nodes_of(one.frame), *columns, strict=True):
        fits = node.path == path
        yield ListedNode(node, size, number) if fits else measured(decoded(node.data))
