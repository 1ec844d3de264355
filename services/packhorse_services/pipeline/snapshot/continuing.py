"""A snapshot that goes on from another one: what has changed is written, the rest is shared.

A part of which no node was written or removed since belongs to both snapshots. Of any other the
file does, and a new one has all that has changed in it since it was stored (ADR 0137). Where that
has become much, the part is written anew.
"""

import functools
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.rows import node_of
from packhorse.snapshots.parts import Change, merged
from packhorse.snapshots.snapshot import (
    MAX_PARTS,
    ContentSnapshot,
    Part,
    part_key,
)
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.history.content import ContentHistory
from packhorse_services.pipeline.history.node_lists import (
    ListedChange,
    listed_nodes,
    measured,
)
from packhorse_services.pipeline.history.onto_base import BaseNodes
from packhorse_services.pipeline.pieces import cores, kept, scattered
from packhorse_services.pipeline.snapshot.parts import (
    UNCHANGED,
    PartDifference,
    as_row,
    fits_beside,
    fitting,
    parts_of,
    renewed,
    runs,
    stays,
    stored,
    with_changes,
)

_MOST_PIECES = 8
"""Into so many a task cuts a part at most: it has sorted what is new in all of them."""

_WHOLE = 2
"""Numbers of a part that stays one: its own, and one for a small rest."""
_ROW = ("partition", "path", "type", "properties", "binaries")


class Slot(NamedTuple):
    """Where a part of the base goes: from which number on, how many there are, and how large."""

    first: int
    pieces: int
    characters: int

    @property
    def is_cut(self) -> bool:
        """Return whether it has grown so much that it becomes several."""
        return self.pieces > _WHOLE


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
    now_ms: int
    """By the blob store's clock."""

    def write(self, content: ContentHistory) -> list[Part] | None:
        """Store the parts, and return them in path order; None: all are to be cut anew.

        `content` was folded onto `base`. Killed anywhere, nothing is published. Raises
        `TaskFailed` when the parts do not hold as many nodes as the content has.
        """
        spark, touched = content.decided.sparkSession, content.touched
        if touched is None:
            return None
        cuts = _cuts(BaseNodes(spark, self.base, self.blobs_url, self.base.offset))
        is_new = f.col("offset") > self.base.offset
        new = _placed(content.decided.where(is_new), cuts)
        with kept(_gone(touched, content.decided)) as gone, kept(new) as new:
            differences = _differences(touched, content.decided.where(~is_new), new, gone)
            sizes = {at: cut.size + differences.get(at, UNCHANGED).size for at, cut in cuts.items()}
            places = slots(sizes, self.part_characters)
            if places is None:
                return None
            unchanged = [at for at in places if at not in differences]
            shared = self._shared(spark, unchanged)
            anew = sorted(set(unchanged) - shared)
            rows = _with_every(_rows(content, new, gone, differences.values()), anew)
            beside = self._beside(places, cuts, differences)
            parts = self._merged(rows, places, beside) if differences or anew else []
        parts += [(places[at].first, self.base.parts[at]) for at in shared]
        self._check(parts, self.base.nodes + sum(one.nodes for one in differences.values()))
        return [part for _, part in sorted(parts, key=lambda one: one[0])]

    def _shared(self, spark: SparkSession, unchanged: list[int]) -> set[int]:
        """Return which parts the new snapshot names as they are: those that have their lists."""
        parts = self.base.parts
        unchanged = [at for at in unchanged if stays(at, parts[at], self.now_ms)]
        if not unchanged:
            return set()

        def renew(some: Iterable[int]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(self.blobs_url)) as blobs:
                there = [at for at in some if renewed(parts[at].files, blobs)]
                yield pa.RecordBatch.from_pydict({"number": pa.array(there, pa.int64())})

        found = scattered(spark, unchanged, renew, "number long", most=cores(spark) * 4)
        return {row.number for row in found.collect()}

    def _beside(
        self,
        places: Mapping[int, Slot],
        cuts: "Mapping[int, _Cut]",
        differences: Mapping[int, PartDifference],
    ) -> dict[int, int]:
        """Return how many nodes each part has of which the changes lie beside it from now on."""
        found = {}
        for at, difference in differences.items():
            part = self.base.parts[at]
            fits = not places[at].is_cut and stays(at, part, self.now_ms)
            if fits and fits_beside(at, part, difference, cuts[at].size):
                found[at] = part.held + difference.nodes
        return found

    def _merged(
        self, rows: DataFrame, places: Mapping[int, Slot], beside: Mapping[int, int]
    ) -> list[tuple[int, Part]]:
        """Store what has changed of the base's parts, each in its place."""

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(self.blobs_url)) as blobs:
                for number, some in itertools.groupby(_changes(batches), lambda one: one[0]):
                    changes = (change for _, change in some if change.path)
                    part, place = self.base.parts[number], places[number]
                    if number in beside and renewed([part], blobs):
                        key = part_key(self.id, place.first)
                        after = with_changes(part, changes, beside[number], key, blobs)
                        yield as_row(place.first, after)
                    else:
                        yield from self._anew(part, place, changes, blobs)

        tasks = min(len(places), cores(rows.sparkSession) * 16)
        together = rows.repartition(tasks, "partition")
        return parts_of(together.sortWithinPartitions("partition", "path"), write)

    def _anew(
        self, part: Part, place: Slot, changes: Iterable[ListedChange], blobs: BlobStore
    ) -> Iterator[pa.RecordBatch]:
        """Store all of a part with its changes; one that has grown is cut."""
        after = merged(listed_nodes(part, blobs), changes)
        for at, run in enumerate(runs(after, place.characters)):
            yield stored(run, self.id, place.first + fitting(at, place.pieces), blobs)

    def _check(self, parts: Iterable[tuple[int, Part]], wanted: int) -> None:
        held = sum(part.held for _, part in parts)
        if held != wanted:
            raise TaskFailed(
                f"the parts of the snapshot would hold {held} nodes, and the content has {wanted}: "
                f"a list of nodes does not fit its part; remove snapshot {self.base.id} and the "
                "blobs snapshots/*/nodes-*, and run it again"
            )


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


def _differences(
    touched: DataFrame, left: DataFrame, new: DataFrame, gone: DataFrame
) -> dict[int, PartDifference]:
    """Return what happens to each part that is not as it was.

    `left` are those of `touched` that are as they were.
    """
    every = [
        _counted(new, "partition", more=f.col("size"), nodes=1),
        _counted(gone, "partition", less=f.col("size")),
        _counted(touched, "position", nodes=-1),
        _counted(left, "position", nodes=1),
    ]
    together = functools.reduce(DataFrame.unionByName, every).groupBy("partition")
    rows = together.agg(
        *(f.sum(name) for name in PartDifference._fields)
    ).collect()  # one for each part
    return {number: PartDifference(*difference) for number, *difference in rows if any(difference)}


def _counted(rows: DataFrame, part: str, **numbers: Column | int) -> DataFrame:
    """Return the part of each row, and the numbers of a `PartDifference`."""
    every = (
        f.lit(numbers.get(name, 0)).cast("long").alias(name) for name in PartDifference._fields
    )
    return rows.select(f.col(part).alias("partition"), *every)


def _rows(
    content: ContentHistory, new: DataFrame, gone: DataFrame, differences: Iterable[PartDifference]
) -> DataFrame:
    """Return what changes: nodes with their texts, and paths without a type that are gone."""
    nothing = [f.lit("").alias(name) for name in _ROW[2:]]
    characters = sum(difference.more for difference in differences)
    written = content.texts.fetched(new, characters).select(*_ROW)
    return written.unionByName(gone.select(*_ROW[:2], *nothing))


def _with_every(rows: DataFrame, parts: list[int]) -> DataFrame:
    """Add a row without a path for each of these parts, so that one without changes is met."""
    own = rows.sparkSession.range(0, max(parts, default=-1) + 1, 1, 1).where(
        f.col("id").isin(parts)
    )
    nothing = [f.lit("").alias(name) for name in _ROW[1:]]
    return rows.union(own.select(f.col("id").cast("int"), *nothing))


def _changes(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, ListedChange]]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for number, *node in zip(*columns, strict=True):
            now = measured(node_of(tuple(node))) if node[1] else None
            yield number, Change(node[0], now)
