"""A snapshot that goes on from another one: what has changed is written, the rest is copied.

A part of which no node was written or removed since keeps its bytes. Into any other the changes are
merged as it is read, so that texts which have not changed pass through one task and no shuffle.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.rows import node_of
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import (
    MAX_PARTS,
    ContentSnapshot,
    Part,
    node_list_key,
    part_key,
)
from packhorse_services.pipeline.engine.kept import kept
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.history.content import ContentHistory
from packhorse_services.pipeline.history.node_lists import (
    ListedNode,
    base_writes,
    list_of,
    listed,
    measured,
)
from packhorse_services.pipeline.snapshot.writing import fitting, parts_of, row_of, runs, stored

_MOST_PIECES = 8
"""Into so many a task cuts a part at most: it has sorted what is new in all of them."""

_ROW = ("partition", "path", "type", "properties", "binaries")


class Change(NamedTuple):
    """What is at a path now; None: nothing any more."""

    path: str
    now: ListedNode | None


def merged(before: Iterable[ListedNode], changes: Iterable[Change]) -> Iterator[ListedNode]:
    """Yield what a part holds after changes; both come in path order, each path once."""
    waiting = iter(changes)
    change = next(waiting, None)
    for one in before:
        while change is not None and change.path < one.node.path:
            if change.now is not None:
                yield change.now
            change = next(waiting, None)
        if change is None or change.path != one.node.path:
            yield one
            continue
        if change.now is not None:
            yield change.now
        change = next(waiting, None)
    if change is not None:
        waiting = itertools.chain([change], waiting)
    yield from (change.now for change in waiting if change.now is not None)


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

    def write(self, content: ContentHistory, nodes: int) -> list[Part] | None:
        """Store the parts, and return them in path order; None: all are to be cut anew.

        Killed anywhere, nothing is published. Raises `TaskFailed` when the parts do not hold the
        `nodes` that the content has.
        """
        held = base_writes(content.winners.sparkSession, self.base, self.blobs_url)
        cuts = _cuts(held)
        new = _placed(content.winners.where(f.col("offset") > self.base.offset), cuts)
        gone = held.join(content.winners.select("path"), "path", "left_anti")
        gone = gone.select(f.col("position").alias("partition"), "path", "size")
        with kept(new) as new, kept(gone) as gone:
            sizes, written = _sizes(cuts, new, gone)
            every = {at: sizes.get(at, cut.size) for at, cut in cuts.items()}
            places = slots(every, self.part_characters)
            if places is None:
                return None
            own = {at: places[at] for at in sizes}
            parts = self._changed(_rows(content, new, gone, written), own) if own else []
            parts += self._copied(content, {at: places[at].first for at in places.keys() - own})
        self._check(parts, nodes)
        return [part for _, part in sorted(parts, key=lambda one: one[0])]

    def _changed(self, rows: DataFrame, places: Mapping[int, Slot]) -> list[tuple[int, Part]]:
        """Merge the changes into their parts; a part that has grown is cut."""

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(self.blobs_url)) as blobs:
                for number, some in itertools.groupby(_changes(batches), lambda one: one[0]):
                    before = _measured(self.base.parts[number], blobs)
                    after = merged(before, (change for _, change in some))
                    first, count, characters = places[number]
                    for at, run in enumerate(runs(after, characters)):
                        yield stored(run, self.id, first + fitting(at, count), blobs)

        together = rows.repartition(min(len(places), _tasks(rows.sparkSession)), "partition")
        return parts_of(together.sortWithinPartitions("partition", "path"), write)

    def _copied(
        self, content: ContentHistory, numbers: Mapping[int, int]
    ) -> list[tuple[int, Part]]:
        """Copy parts of the base, each to its new number."""
        unchanged = sorted(numbers.items())
        if not unchanged:
            return []

        def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(self.blobs_url)) as blobs:
                for batch in batches:
                    for at in batch.column(0).to_pylist():
                        number, own = unchanged[at]
                        yield self._copy(number, own, blobs)

        spark = content.winners.sparkSession
        tasks = min(len(unchanged), _tasks(spark))
        return parts_of(spark.range(0, len(unchanged), 1, tasks), copy)

    def _copy(self, number: int, own: int, blobs: BlobStore) -> pa.RecordBatch:
        part = self.base.parts[number]
        copied = replace(part, key=part_key(self.id, own))
        blobs.put(copied.key, blobs.get(part.key), sha256=part.sha256)
        if blobs.head(node_list_key(part)) is None:
            list_of(part, blobs).store(part, blobs)
        return row_of(own, copied)

    def _check(self, parts: Iterable[tuple[int, Part]], wanted: int) -> None:
        held = sum(part.nodes for _, part in parts)
        if held != wanted:
            raise TaskFailed(
                f"the parts of the snapshot would hold {held} nodes, and the content has {wanted}: "
                f"a list of nodes does not fit its part; remove snapshot {self.base.id} and the "
                "blobs snapshots/*/nodes-*, and run it again"
            )


def _tasks(spark: SparkSession) -> int:
    """Return how many tasks parts are shared among at most."""
    return spark.sparkContext.defaultParallelism * 16


class _Cut(NamedTuple):
    first: str
    size: int


def _cuts(held: DataFrame) -> dict[int, _Cut]:
    """Return where the base's parts begin, and how many characters they have, in path order."""
    found = held.groupBy("position").agg(f.min("path").alias("first"), f.sum("size").alias("size"))
    return {row.position: _Cut(row.first, row["size"]) for row in sorted(found.collect())}


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


def _changes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Change]]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for number, *node in zip(*columns, strict=True):
            now = measured(node_of(tuple(node))) if node[1] else None
            yield number, Change(node[0], now)


def _measured(part: Part, blobs: BlobStore) -> Iterator[ListedNode]:
    """Yield the nodes of a part with their numbers, which are listed or made anew."""
    nodes, rows = read_part(part, blobs), listed(part, blobs)
    if rows is None:
        yield from map(measured, nodes)
        return
    columns = (column.to_pylist() for column in rows.columns)
    for node, path, size, number in zip(nodes, *columns, strict=True):
        yield ListedNode(node, size, number) if node.path == path else measured(node)
