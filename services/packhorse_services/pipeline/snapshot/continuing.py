"""A snapshot that goes on from another one: what has changed is written, the rest is shared.

A part of which no node was written or removed since belongs to both snapshots. Of any other, a
frame without changes is copied as it is stored, and into the others the changes are merged, so that
texts which have not changed pass through one task and no shuffle.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.rows import node_of
from packhorse.snapshots.snapshot import MAX_PARTS, ContentSnapshot, Part, node_list_key
from packhorse_services.pipeline.engine.kept import kept
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.history.content import ContentHistory
from packhorse_services.pipeline.history.node_lists import (
    measured,
)
from packhorse_services.pipeline.history.onto_base import BaseNodes
from packhorse_services.pipeline.snapshot.merging import Change, Changes, after_changes
from packhorse_services.pipeline.snapshot.writing import (
    bytes_of_frame,
    fitting,
    parts_of,
    runs,
    stored,
)

_MOST_PIECES = 8
"""Into so many a task cuts a part at most: it has sorted what is new in all of them."""

_SHARES = 32
"""Frames without changes are passed on together, up to this share of a part, as it may be cut."""
_ROW = ("partition", "path", "type", "properties", "binaries")


class Slot(NamedTuple):
    """Where a part of the base goes: from which number on, how many there are, and how large."""

    first: int
    pieces: int
    characters: int


def slots(sizes: Mapping[int, int], part_characters: int) -> dict[int, Slot] | None:
    """Return the place of each part by its size, in their order; None: all are to be cut anew.

    That is where one has grown so much that it is no work for one task, or most have shrunk.
    """
    pieces = {number: max(1, round(size / part_characters)) for number, size in sizes.items()}
    needed = 1 + sum(sizes.values()) // part_characters
    if max(pieces.values(), default=0) > _MOST_PIECES or len(sizes) > 2 * needed:
        return None
    found, first = {}, 0
    for number, count in pieces.items():
        # No small rest is left behind, and a place for one that is left nevertheless.
        each = 1 + max(sizes[number], part_characters) // count
        found[number] = Slot(first, count + 1, each)
        first += count + 1
    return found if first <= MAX_PARTS else None


@dataclass(frozen=True, slots=True)
class ContinuedSnapshot:
    """The parts of the new snapshot `id`, made from those of `base`."""

    id: str
    base: ContentSnapshot
    blobs_url: str
    part_characters: int

    def write(self, content: ContentHistory) -> list[Part] | None:
        """Store the parts, and return them in path order; None: all are to be cut anew.

        `content` was folded onto `base`. Killed anywhere, nothing is published. Raises
        `TaskFailed` when the parts do not hold as many nodes as the content has.
        """
        spark, touched = content.decided.sparkSession, content.touched
        if touched is None:
            return None
        cuts = _cuts(BaseNodes(spark, self.base, self.blobs_url, self.base.offset))
        new = _placed(content.decided.where(f.col("offset") > self.base.offset), cuts)
        with (
            kept(_gone(touched, content.decided)) as gone,
            kept(new) as new,
        ):
            sizes, written = _sizes(cuts, new, gone)
            every = {at: sizes.get(at, cut.size) for at, cut in cuts.items()}
            places = slots(every, self.part_characters)
            if places is None:
                return None
            unchanged = [at for at in places if at not in sizes]
            shared = self._shared(spark, unchanged)
            unlisted = sorted(set(unchanged) - shared)
            rows = _with_every(_rows(content, new, gone, written), unlisted)
            parts = self._merged(rows, places) if sizes or unlisted else []
            nodes = self.base.nodes + _more(touched, content.decided)
        parts += [(places[at].first, self.base.parts[at]) for at in shared]
        self._check(parts, nodes)
        return [part for _, part in sorted(parts, key=lambda one: one[0])]

    def _shared(self, spark: SparkSession, unchanged: list[int]) -> set[int]:
        """Return which parts the new snapshot names as they are: those that have their lists.

        They are renewed, so nobody who removes the base takes them before that is published.
        """
        parts = self.base.parts
        if not unchanged:
            return set()

        def renew(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(self.blobs_url)) as blobs:
                for batch in batches:
                    held = [parts[unchanged[at]] for at in batch.column(0).to_pylist()]
                    there = [_renewed(part, blobs) for part in held]
                    yield batch.filter(pa.array(there, pa.bool_()))

        tasks = min(len(unchanged), spark.sparkContext.defaultParallelism * 4)
        found = spark.range(0, len(unchanged), 1, tasks).mapInArrow(renew, "id long").collect()
        return {unchanged[row[0]] for row in found}

    def _merged(self, rows: DataFrame, places: Mapping[int, Slot]) -> list[tuple[int, Part]]:
        """Merge the changes into the base's parts, each to its place; one that has grown is cut."""

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(self.blobs_url)) as blobs:
                for number, some in itertools.groupby(_changes(batches), lambda one: one[0]):
                    first, count, characters = places[number]
                    changes = Changes(change for _, change in some if change.path)
                    frame_bytes = bytes_of_frame(characters)
                    together = max(1, characters // frame_bytes // _SHARES)
                    part = self.base.parts[number]
                    after = after_changes(part, changes, blobs, frame_bytes, together)
                    for at, run in enumerate(runs(after, characters)):
                        yield stored(run, self.id, first + fitting(at, count), blobs)

        tasks = min(len(places), rows.sparkSession.sparkContext.defaultParallelism * 16)
        together = rows.repartition(tasks, "partition")
        return parts_of(together.sortWithinPartitions("partition", "path"), write)

    def _check(self, parts: Iterable[tuple[int, Part]], wanted: int) -> None:
        held = sum(part.nodes for _, part in parts)
        if held != wanted:
            raise TaskFailed(
                f"the parts of the snapshot would hold {held} nodes, and the content has {wanted}: "
                f"a list of nodes does not fit its part; remove snapshot {self.base.id} and the "
                "blobs snapshots/*/nodes-*, and run it again"
            )


def _renewed(part: Part, blobs: BlobStore) -> bool:
    """Renew a part and its list, and return whether both are there, the part with its length."""
    found = blobs.renew(part.key)
    if found is None or found.length != part.length:
        return False
    return blobs.renew(node_list_key(part)) is not None


class _Cut(NamedTuple):
    first: str
    size: int


def _cuts(held: BaseNodes) -> dict[int, _Cut]:
    """Return where the base's parts begin, and how many characters they have, in path order."""

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            size = pa.array([pc.sum(batch.column("size"))])
            first = [batch.column(name)[:1] for name in ("position", "path")]
            yield pa.RecordBatch.from_arrays([*first, size], ["position", "path", "size"])

    found: dict[int, _Cut] = {}
    rows = held.mapped(cut, "position int, path string, size long").collect()
    for number, path, size in sorted(rows):
        before = found.get(number, _Cut(path, 0))
        found[number] = _Cut(before.first, before.size + size)
    return found


def _placed(winners: DataFrame, cuts: Mapping[int, _Cut]) -> DataFrame:
    """Add `partition`, the number of the base's part that a path belongs to."""
    numbers, firsts = list(cuts), [cut.first for cut in cuts.values()]

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column("path").to_pylist()
            found = [numbers[max(0, bisect_right(firsts, path) - 1)] for path in paths]
            yield batch.append_column("partition", pa.array(found, pa.int32()))

    columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in winners.schema)
    return winners.mapInArrow(place, f"{columns}, partition int")


def _gone(held: DataFrame, decided: DataFrame) -> DataFrame:
    """Return partition, path and size of the base's nodes whose paths have nothing any more."""
    gone = held.join(decided.select("path"), "path", "left_anti")
    return gone.select(f.col("position").alias("partition"), "path", "size")


def _more(before: DataFrame, after: DataFrame) -> int:
    """Return how many rows more there are in `after`."""
    each = before.select(f.lit(-1).alias("more")).union(after.select(f.lit(1)))
    return int(each.agg(f.coalesce(f.sum("more"), f.lit(0))).collect()[0][0])


def _sizes(cuts: Mapping[int, _Cut], new: DataFrame, gone: DataFrame) -> tuple[dict[int, int], int]:
    """Return how many characters each part will have about that is not as it was.

    And how many are written.
    """
    none = f.lit(0).cast("long")
    more = new.select("partition", f.col("size").alias("more"), none.alias("less"))
    less = gone.select("partition", none.alias("more"), f.col("size").alias("less"))
    changes = more.unionByName(less).groupBy("partition").agg(f.sum("more"), f.sum("less"))
    rows = changes.collect()  # one for each part
    sizes = {number: cuts[number].size + most - least for number, most, least in rows}
    return sizes, sum(row[1] for row in rows)


def _rows(content: ContentHistory, new: DataFrame, gone: DataFrame, characters: int) -> DataFrame:
    """Return what changes: nodes with their texts, and paths without a type that are gone."""
    nothing = [f.lit("").alias(name) for name in _ROW[2:]]
    written = content.texts.fetched(new, characters).select(*_ROW)
    return written.unionByName(gone.select(*_ROW[:2], *nothing))


def _with_every(rows: DataFrame, parts: list[int]) -> DataFrame:
    """Add a row without a path for each of these parts, so that one without changes is met."""
    own = rows.sparkSession.range(0, max(parts, default=-1) + 1, 1, 1).where(
        f.col("id").isin(parts)
    )
    nothing = [f.lit("").alias(name) for name in _ROW[1:]]
    return rows.union(own.select(f.col("id").cast("int"), *nothing))


def _changes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Change]]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for number, *node in zip(*columns, strict=True):
            now = measured(node_of(tuple(node))) if node[1] else None
            yield number, Change(node[0], now)
