"""Folded content to the parts of a snapshot, in path order, each of bounded size."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import astuple

import pyarrow as pa
from pyspark import TaskContext

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.content.rows import node_of
from packhorse.snapshots.parts import write_part
from packhorse.snapshots.snapshot import MAX_PARTS, Part, part_key
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.content import PARTITION_CHARACTERS, ContentHistory

PART_CHARACTERS = PARTITION_CHARACTERS
"""What a part holds about; a subscriber reads one after the other, in constant memory."""

_PARTS = pa.schema(
    [
        ("number", pa.int64()),
        ("key", pa.string()),
        ("sha256", pa.string()),
        ("length", pa.int64()),
        ("content_length", pa.int64()),
        ("nodes", pa.int64()),
    ]
)
_DDL = (
    "number bigint, key string, sha256 string, length bigint, content_length bigint, nodes bigint"
)


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
                if at == each:
                    raise TaskRefused("the content is larger than a snapshot may be")
                part = write_part(run, part_key(snapshot_id, first + at), blobs)
                row = dict(zip(_PARTS.names, (first + at, *astuple(part)), strict=True))
                yield pa.RecordBatch.from_pylist([row], _PARTS)

    nodes = ordered.select("path", "type", "properties", "binaries")
    rows = nodes.mapInArrow(write, _DDL).collect()  # what the manifest will hold
    return [Part(*row[1:]) for row in sorted(rows)]


def runs(nodes: Iterable[Node], characters: int) -> Iterator[Iterator[Node]]:
    """Cut nodes into runs of about that size, each to be taken before the next."""
    rest = iter(nodes)
    for first in rest:
        yield _up_to(itertools.chain([first], rest), characters)


def _up_to(nodes: Iterator[Node], characters: int) -> Iterator[Node]:
    size = 0
    for node in nodes:
        yield node
        size += node.size
        if size >= characters:
            return


def _nodes(batches: Iterable[pa.RecordBatch]) -> Iterator[Node]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        yield from map(node_of, zip(*columns, strict=True))
