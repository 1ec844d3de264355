"""The parts of a snapshot: folded content in path order; and what has changed, beside a part."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.rows import node_of
from packhorse.snapshots.parts import Change, merged, write_changes, write_part
from packhorse.snapshots.snapshot import MAX_PARTS, Part, PartFile, node_list_key, part_key
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.content import PARTITION_CHARACTERS, ContentHistory
from packhorse_services.pipeline.history.node_lists import (
    ListedChange,
    ListedNode,
    NodeList,
    listed_changes,
    measured,
)

PART_CHARACTERS = PARTITION_CHARACTERS
"""What a part holds about; a subscriber reads one after the other, in constant memory."""

_PARTS = StructType([StructField("number", LongType()), StructField("part", StringType())])
_ROW = to_arrow_schema(_PARTS)
_AS_TEXT = TypeAdapter(Part)


def write_parts(
    content: ContentHistory,
    snapshot_id: str,
    blobs_url: str,
    part_characters: int = PART_CHARACTERS,
) -> list[Part]:
    """Store the content as parts, and return them in path order.

    A task that is repeated writes the same bytes under the same keys. Raises `TaskRefused` for
    more than a snapshot can hold.
    """
    ordered, partitions = content.ordered(part_characters)
    each = MAX_PARTS // partitions

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        first = (context.partitionId() if context else 0) * each
        with closing(open_blobs(blobs_url)) as blobs:
            for at, run in enumerate(runs(_nodes(batches), part_characters)):
                yield stored(run, snapshot_id, first + fitting(at, each), blobs)

    nodes = ordered.select("path", "type", "properties", "binaries")
    return [part for _, part in sorted(parts_of(nodes, write), key=lambda one: one[0])]


Writing = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def parts_of(rows: DataFrame, write: Writing) -> list[tuple[int, Part]]:
    """Return the parts that tasks write from rows, and their numbers: what a manifest holds."""
    found = rows.mapInArrow(write, _PARTS).collect()
    return [(row.number, _AS_TEXT.validate_json(row.part)) for row in found]


def fitting(at: int, each: int) -> int:
    """Return the number of a part of a partition. Raises `TaskRefused` when it has too many."""
    if at >= each:
        raise TaskRefused("the content is larger than a snapshot may be")
    return at


def stored(
    nodes: Iterable[ListedNode], snapshot_id: str, number: int, blobs: BlobStore
) -> pa.RecordBatch:
    """Store a part and the list of its nodes, and return it as a row."""
    noted = NodeList()
    part = write_part(noted.nodes(nodes), part_key(snapshot_id, number), blobs)
    noted.store(part, blobs)
    return as_row(number, part)


def as_row(number: int, part: Part) -> pa.RecordBatch:
    """Return a part as `parts_of` reads it."""
    row = {"number": number, "part": _AS_TEXT.dump_json(part).decode()}
    return pa.RecordBatch.from_pylist([row], _ROW)


def runs(nodes: Iterable[ListedNode], characters: int) -> Iterator[Iterator[ListedNode]]:
    """Cut nodes into runs of about that size, each to be taken before the next."""
    rest = iter(nodes)
    for first in rest:
        yield _up_to(itertools.chain([first], rest), characters)


def _up_to(nodes: Iterator[ListedNode], characters: int) -> Iterator[ListedNode]:
    size = 0
    for one in nodes:
        yield one
        size += one.size
        if size >= characters:
            return


def _nodes(batches: Iterable[pa.RecordBatch]) -> Iterator[ListedNode]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        yield from map(measured, map(node_of, zip(*columns, strict=True)))


_STEPS = 16
_DAY_MS = 24 * 3600 * 1000
_DAYS = 16
"""Changes stay beside a part for so many days to twice as many: what they replaced is there yet."""


def renewed(files: Iterable[PartFile], blobs: BlobStore) -> bool:
    """Renew files and their lists, and return whether all are there, the files with their length.

    So nobody who removes the base takes them before the new snapshot is published.
    """
    for file in files:
        found = blobs.renew(file.key)
        if found is None or found.length != file.length or not blobs.renew(node_list_key(file)):
            return False
    return True


class PartDifference(NamedTuple):
    """What happens to a part: characters that are written, and of nodes that go; nodes it gets."""

    more: int
    less: int
    nodes: int

    @property
    def size(self) -> int:
        """How many characters it gets, about: those of nodes that are replaced still count."""
        return self.more - self.less


UNCHANGED = PartDifference(0, 0, 0)


def stays(number: int, part: Part, now_ms: int) -> bool:
    """Return whether a part with its changes may go on as it is: they are not old yet."""
    if part.changes is None:
        return True
    return now_ms - part.changes.since_ms < _step(number, _DAYS * _DAY_MS)


def fits_beside(number: int, part: Part, difference: PartDifference, characters: int) -> bool:
    """Return whether all changes fit beside a part, which has so many characters with the last.

    They may have an eighth to a quarter of its bytes.
    """
    held = part.changes.content_length if part.changes else 0
    changed = (difference.more + difference.less) * part.content_length // max(1, characters)
    return held + changed <= _step(number, part.content_length // 8)


def _step(number: int, least: int) -> int:
    """Return this up to twice as much: not all parts are to be written anew on one day."""
    return least * (_STEPS + number % _STEPS) // _STEPS


def with_changes(
    part: Part, changes: Iterable[ListedChange], nodes: int, key: str, blobs: BlobStore
) -> Part:
    """Store all that has changed in a part, with its list; it has so many nodes after that.

    A path that is gone stays among its changes: the part's file may have it.
    """
    before = listed_changes(part.changes, blobs) if part.changes else ()
    later = (Change(change.path, change) for change in changes)
    noted = NodeList()
    after = write_changes(part, noted.changes(merged(before, later)), nodes, key, blobs)
    if after.changes:
        noted.store(after.changes, blobs)
    return after
