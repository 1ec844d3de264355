"""Folded content to the parts of a snapshot, in path order, each of bounded size."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.rows import node_of
from packhorse.snapshots.parts import write_part
from packhorse.snapshots.snapshot import MAX_PARTS, Part, part_key
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.content import PARTITION_CHARACTERS, ContentHistory
from packhorse_services.pipeline.history.node_lists import ListedNode, NodeList, measured

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
