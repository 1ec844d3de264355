"""Changes merged into a stored part, frame by frame; no Spark.

A frame without changes is passed on as it is stored.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from packhorse.blobs.api import BlobStore
from packhorse.blobs.digest import Verified
from packhorse.snapshots.parts import nodes_of, pieces_of, read_part, stored_frame
from packhorse.snapshots.snapshot import Part
from packhorse_services.pipeline.history.node_lists import (
    ListedFrame,
    ListedNode,
    listed,
    listed_frames,
    measured,
)


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
    part: Part, changes: Changes, blobs: BlobStore, frame_bytes: int
) -> Iterator[ListedFrame]:
    """Yield what a part holds after changes. Without its list all of it is packed anew."""
    rows = listed(part, blobs)
    if not rows:
        nodes = map(measured, read_part(part, blobs))
        yield from listed_frames(merged(nodes, changes.before(None)), frame_bytes)
        return
    for one, until in stored_frames(part, rows, blobs):
        if changes.next is None or (until is not None and changes.next.path >= until):
            yield one
        else:
            yield from listed_frames(merged(_nodes(one), changes.before(until)), frame_bytes)


def stored_frames(
    part: Part, rows: pa.Table, blobs: BlobStore
) -> Iterator[tuple[ListedFrame, str | None]]:
    """Yield a part's frames as they are stored, and the first path of the one behind each."""
    found = pc.run_end_encode(rows["end"].combine_chunks())
    ends, stops = found.values.to_pylist(), found.run_ends.to_pylist()
    paths = rows["path"]
    stored = Verified(blobs.get(part.key), sha256=part.sha256, length=part.length)
    lengths = [end - start for start, end in itertools.pairwise([0, *ends])]
    starts = itertools.pairwise([0, *stops])
    for data, (start, stop) in zip(pieces_of(stored, lengths), starts, strict=True):
        frame = stored_frame(data, stop - start)
        until = paths[stop].as_py() if stop < len(paths) else None
        yield ListedFrame(frame, rows.slice(start, stop - start).drop_columns("end")), until


def _nodes(one: ListedFrame) -> Iterator[ListedNode]:
    """Yield the nodes of a frame with their numbers, which are listed or made anew."""
    columns = (column.to_pylist() for column in one.rows.columns)
    for node, path, size, number in zip(nodes_of(one.frame), *columns, strict=True):
        yield ListedNode(node, size, number) if node.path == path else measured(node)
