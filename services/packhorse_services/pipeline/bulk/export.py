"""Nodes to stored packages on Spark's executors: a task is a part, a part is a package."""

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import Schema
from pyspark import Accumulator
from pyspark.sql import types as t

from packhorse.blobs.open import open_blobs
from packhorse.content import scan
from packhorse.content.node import Node
from packhorse.content.parts import SubtreePart
from packhorse.db.metadata import EXPORTER
from packhorse.db.roles import act_as
from packhorse.packages.body import pack
from packhorse.packages.package_id import RANDOM_BITS, make_package_id
from packhorse_services.pipeline.bulk.snapshot import AuthorSnapshot, PlannedPart
from packhorse_services.pipeline.bulk.state import Export
from packhorse_services.pipeline.engine.databases import AUTHOR, reading
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


@dataclass(frozen=True, slots=True)
class Meter:
    """What executors have done so far; a part counts once its package is stored."""

    parts: "Accumulator[int]"
    nodes: "Accumulator[int]"


@dataclass(frozen=True, slots=True)
class Packing:
    """Stores the package of a part. Runs on executors, which all read one exported `snapshot`.

    Memory is constant. The snapshot must stay open.
    """

    export: Export
    snapshot: str
    meter: Meter

    def __call__(self, part: PlannedPart) -> dict[str, Any]:
        """Return what is the part's own of its row of `BULK_PARTS`.

        Raises `TaskFailed` when the part is not what was planned: then it is of another snapshot.
        """
        within = part.within(self.export.deep_path)
        with reading(self.export.database_url, AUTHOR, self.snapshot) as connection:
            act_as(connection, EXPORTER)
            nodes = _planned(scan.nodes(connection, within), part, within)
            stored = store(nodes, self.export.blobs_url)
        self.meter.parts.add(1)
        self.meter.nodes.add(part.nodes)
        ranges = {"range_from": part.range_from, "range_to": part.range_to}
        return {"part": part.number, **ranges, **stored}


def store(nodes: Iterable[Node], blobs_url: str) -> dict[str, Any]:
    """Store the nodes as a package of a new id, and return what describes it in `BULK_PARTS`.

    Memory is constant. Raises as `pack` does.
    """
    package_id = make_package_id(time.time_ns() // 10**6, secrets.randbits(RANDOM_BITS))
    with closing(open_blobs(blobs_url)) as blobs:
        packed = pack(nodes, package_id, blobs, inline_bytes=0)
    return {
        "package_id": package_id,
        "body_sha256": packed.body.sha256.hex(),
        "body_length": packed.length,
        "content_length": packed.body.content_length,
        "node_count": packed.node_count,
    }


def part_table(
    stored: Sequence[Mapping[str, Any]], deep_path: str, snapshot: AuthorSnapshot
) -> pa.Table:
    """Return the rows of `BULK_PARTS`, of what `Packing` has returned for all parts."""
    of_all = {
        "deep_path": deep_path,
        "part_count": len(stored),
        "seen_epoch": snapshot.seen_epoch,
        "seen_sequence": snapshot.seen_sequence,
        "snapshot_ms": snapshot.taken_ms,
    }
    # Not PySpark's own schema for Arrow: Delta finds no comments in it.
    shape = pa.schema(Schema.from_json(BULK_PARTS.json()).to_arrow())
    return pa.Table.from_pylist([{**of_all, **part} for part in stored], shape)


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
