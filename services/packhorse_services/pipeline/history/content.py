"""The content at a point of the history, folded from the archive and the newest usable base."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.open import open_blobs
from packhorse.content.node import ROOT, Node, is_within
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import Part, Snapshot, left_out
from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.history.beginning import Beginning, beginning
from packhorse_services.pipeline.history.decoding import binaries_text
from packhorse_services.pipeline.history.events import kept, package_events
from packhorse_services.pipeline.history.fold import fold
from packhorse_services.pipeline.history.read import packages_up_to, removed_by, without
from packhorse_services.pipeline.history.target import Target
from packhorse_services.pipeline.location import Location

_PART = "key string, sha256 string, length bigint, content_length bigint, nodes bigint"
_BATCH_ROWS = 2_000
_BATCH_CHARACTERS = 8 * 1024**2
_NODES = pa.schema([(name, pa.string()) for name in schemas.NODES.names])


@dataclass(frozen=True, slots=True)
class Choice:
    """Which packages count, and which paths are wanted."""

    subscriber: str = ""
    """What it removed is left out; empty: nothing is."""
    leave_out: tuple[int, ...] = ()
    """Offsets of packages that nobody imported, and that can't be read."""
    within: str = ROOT


@contextmanager
def content_at(
    spark: SparkSession,
    location: Location,
    blobs_url: str,
    target: Target,
    choice: Choice,
) -> Iterator[tuple[DataFrame, Beginning]]:
    """Lend the content at `target`, in the columns of `fold`, and say where its fold began.

    It is kept on the workers' disks meanwhile, so that reading it twice folds once. Raises
    `TaskRefused` when the history is incomplete or holds packages that can't be read.
    """
    absent = _absent(spark, location, target, choice)
    with closing(open_blobs(blobs_url)) as blobs:
        begin = beginning(
            *(spark, location, blobs, target), subscriber=choice.subscriber, left_out=absent
        )
    packages = _packages(spark, location, target, begin)
    if absent:
        gone = [(offset,) for offset in absent]
        packages = without(packages, spark.createDataFrame(gone, "offset long"))
    base = base_nodes(spark, begin.base, blobs_url, choice.within) if begin.base else None
    events = package_events(packages, location.blobs_url(tables.BODIES), choice.within)
    with kept(events):
        content = fold(events, base, begin.after).where(_is_within(choice.within))
        with kept(content):
            yield content, replace(begin, left_out=left_out(absent))


def base_nodes(
    spark: SparkSession, snapshot: Snapshot, blobs_url: str, within: str = ROOT
) -> DataFrame:
    """Return the nodes of a snapshot as `schemas.NODES`; a task reads and verifies each part."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs = open_blobs(blobs_url)
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    yield from _batches(read_part(Part(**row), blobs), within)
        finally:
            blobs.close()

    rows = [astuple(part) for part in snapshot.parts]
    parts = spark.createDataFrame(rows, _PART).repartition(max(1, len(rows)))
    return parts.mapInArrow(read, schemas.NODES)


def _absent(
    spark: SparkSession, location: Location, target: Target, choice: Choice
) -> tuple[int, ...]:
    """Return the offsets of packages that do not count, read once; they are few."""
    offsets = {offset for offset in choice.leave_out if offset <= target.offset}
    if choice.subscriber:
        removed = removed_by(
            spark, location, choice.subscriber, target.agents, target.journal_id
        ).where(f.col("offset") <= target.offset)
        offsets.update(row["offset"] for row in removed.toLocalIterator())
    return tuple(sorted(offsets))


def _packages(
    spark: SparkSession, location: Location, target: Target, begin: Beginning
) -> DataFrame:
    return packages_up_to(
        spark,
        location,
        agents=target.agents,
        after=begin.after,
        up_to=target.offset,
        journal_id=target.journal_id,
        applied=begin.base.sequences if begin.base else (),
    )


def _is_within(path: str) -> Column:
    below = ROOT if path == ROOT else f"{path}/"
    return (f.col("path") == path) | f.col("path").startswith(below)


def _batches(nodes: Iterable[Node], within: str) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[str, str, str, str]] = []
    size = 0
    for node in nodes:
        if not is_within(node.path, within):
            continue
        rows.append((node.path, node.type, node.properties, binaries_text(node.binaries)))
        size += node.size
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_CHARACTERS:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[str, str, str, str]]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_NODES)
