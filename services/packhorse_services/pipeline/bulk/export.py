"""Nodes to stored packages on Spark's executors: a partition is a part, a part is a package."""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.content.parts import SubtreePart
from packhorse.content.rows import node_of
from packhorse.content.scan import JDBC_NODES, condition
from packhorse.db.metadata import EXPORTER
from packhorse.packages.body import pack
from packhorse.packages.package_id import RANDOM_BITS, make_package_id
from packhorse_services.pipeline.bulk.jdbc import JdbcDatabase
from packhorse_services.pipeline.bulk.snapshot import AuthorSnapshot, PlannedPart
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.storage import columns as c

BULK_PARTS = t.StructType(
    [
        c.integer("part", "Number of the part, in the order of paths"),
        c.text("deep_path", "Path that is distributed with all that lies below it"),
        c.text("range_from", "First path that may be in the part; empty for the first"),
        c.text("range_to", "Path before which the part ends; empty for the last"),
        c.text("package_id", "Id of the package"),
        c.text("body_sha256", "SHA-256 of the body as stored, hexadecimal"),
        c.long("body_length", "Length of the body as stored, compressed", c.BYTES),
        c.long("content_length", "Length of the body once decompressed", c.BYTES),
        c.long("node_count", "Nodes in the body", "nodes"),
        c.integer("part_count", "Number of all parts", "parts"),
        c.long("seen_epoch", "Epoch of the last package before the snapshot"),
        c.long("seen_sequence", "Sequence of the last package before the snapshot"),
        c.long("snapshot_ms", "When the author's database was read, by its clock", c.EPOCH_MS),
    ]
)
"""The stored packages of one bulk distribution, all of one snapshot."""

_FETCH_NODES = "50"
"""A node may have 1 MB: what a task holds of the server's answer stays small. 0 would be all."""
_COLUMNS = ("path", "type", "properties", "binaries")
_PACKED = "part int, package_id string, body_sha256 string, body_length long, content_length long"


@dataclass(frozen=True, slots=True)
class Meter:
    """What executors have done so far; a part counts once its package is stored."""

    parts: "Accumulator[int]"
    nodes: "Accumulator[int]"


def read_nodes(
    spark: SparkSession, database: JdbcDatabase, snapshot: str, parts: Sequence[SubtreePart]
) -> DataFrame:
    """Return the nodes of the parts, a partition for each, in no order within it.

    Every executor reads the same exported `snapshot`, which must stay open, as the exporter.
    """
    # With a fetch size Spark's dialect turns autocommit off, so that a cursor is used, and that
    # before the statement above: it begins the very transaction that reads.
    properties = {
        **database.properties,
        "driver": "org.postgresql.Driver",
        "fetchsize": _FETCH_NODES,
        "sessionInitStatement": session_statement(snapshot),
    }
    predicates = [condition(part).as_string() for part in parts]
    return spark.read.jdbc(database.url, JDBC_NODES, predicates=predicates, properties=properties)


def session_statement(snapshot: str) -> str:
    """Return what lets the transaction that it begins see `snapshot`, as the exporter."""
    return (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
        f"SET TRANSACTION SNAPSHOT '{snapshot}'; SET LOCAL ROLE {EXPORTER}"
    )


def store_packages(
    nodes: DataFrame, deep_path: str, parts: Sequence[PlannedPart], blobs_url: str, meter: Meter
) -> DataFrame:
    """Store a package of each partition of `nodes`, and return what each one is (`_PACKED`).

    Partition n holds the nodes of part n. Raises, on the executor, `TaskFailed` when a partition
    is not what was planned: then it is of another snapshot.
    """
    packing = _Packing(deep_path, tuple(parts), blobs_url, meter)
    return nodes.sortWithinPartitions("path").mapInArrow(packing, _PACKED)


def part_rows(
    packed: DataFrame, deep_path: str, parts: Sequence[PlannedPart], snapshot: AuthorSnapshot
) -> DataFrame:
    """Return the rows of `BULK_PARTS`: stored packages with their ranges."""
    ranges = packed.sparkSession.createDataFrame(
        [(part.number, part.range_from, part.range_to, part.nodes) for part in parts],
        "part int, range_from string, range_to string, node_count long",
    )
    rows = packed.join(f.broadcast(ranges), "part").withColumns(
        {
            "deep_path": f.lit(deep_path),
            "part_count": f.lit(len(parts)),
            "seen_epoch": f.lit(snapshot.seen.epoch).cast("long"),
            "seen_sequence": f.lit(snapshot.seen.sequence).cast("long"),
            "snapshot_ms": f.lit(snapshot.taken_ms).cast("long"),
        }
    )
    return rows.select(*BULK_PARTS.names)


@dataclass(frozen=True, slots=True)
class _Packing:
    deep_path: str
    parts: tuple[PlannedPart, ...]
    blobs_url: str
    meter: Meter

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        planned = self.parts[_partition()]
        package_id = make_package_id(time.time_ns() // 10**6, secrets.randbits(RANDOM_BITS))
        with closing(open_blobs(self.blobs_url)) as blobs:
            nodes = _planned(_nodes(batches), planned, planned.within(self.deep_path))
            packed = pack(nodes, package_id, blobs, inline_bytes=0)
        self.meter.parts.add(1)
        self.meter.nodes.add(packed.node_count)
        row = {
            "part": pa.array([planned.number], pa.int32()),
            "package_id": pa.array([package_id]),
            "body_sha256": pa.array([packed.body.sha256.hex()]),
            "body_length": pa.array([packed.length], pa.int64()),
            "content_length": pa.array([packed.body.content_length], pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(row)


def _partition() -> int:
    context = TaskContext.get()
    if context is None:
        raise TaskFailed("packages are stored on executors only")
    return context.partitionId()


def _nodes(batches: Iterator[Any]) -> Iterator[Node]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _COLUMNS)
        yield from map(node_of, zip(*columns, strict=True))


def _planned(nodes: Iterator[Node], planned: PlannedPart, part: SubtreePart) -> Iterator[Node]:
    """Pass on the nodes of a part. Raises `TaskFailed` unless they are as many as planned."""
    seen = 0
    for node in nodes:
        if not part.holds(node.path):
            raise TaskFailed(f"{node.path!r} is not in part {planned.number}; run it again")
        seen += 1
        yield node
    if seen != planned.nodes:
        raise TaskFailed(
            f"part {planned.number} has {seen} nodes and not {planned.nodes}: it was read from "
            "another snapshot; run it again"
        )
