"""A subscriber's content as the executors read it: in one snapshot, by ranges of paths."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession

from packhorse.content import scan
from packhorse.content.node import ROOT
from packhorse.content.parts import SubtreePart
from packhorse.db.metadata import EXPORTER
from packhorse.db.roles import act_as
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse_services.pipeline.engine.databases import reading

_RANGE_NODES = 5_000
_MOST_RANGES = 4_096
_ROWS = 2_000
_CONFIRMED = 200
_END = "\U0010ffff"
"""Behind every path."""


@dataclass(frozen=True)
class Repository:
    """A subscriber's content below `top` that it takes, in the state that `snapshot` names."""

    database_url: str
    name: str
    snapshot: str
    top: str = ROOT
    path_filter: PathFilter = EVERYTHING

    def hashes(self, spark: SparkSession, starts: Sequence[str]) -> DataFrame:
        """Return range, count and sum (as text) of every range."""

        def rows(connection: Connection, number: int) -> Iterator[tuple[Any, ...]]:
            hashes = [scan.hash_range(connection, bounds) for bounds in inside(number)]
            total = sum(int(one) for _, one in hashes)
            yield number, sum(count for count, _ in hashes), str(total)

        inside = self._inside(starts)
        return self._scattered(spark, range(len(starts)), rows, "range int, count long, sum string")

    def digests(
        self, spark: SparkSession, starts: Sequence[str], ranges: Sequence[int]
    ) -> DataFrame:
        """Return path and hash of the nodes in some of the ranges."""

        def rows(connection: Connection, number: int) -> Iterator[tuple[Any, ...]]:
            for bounds in inside(number):
                yield from scan.node_hashes(connection, bounds)

        inside = self._inside(starts)
        return self._scattered(spark, ranges, rows, "path string, hash long")

    def confirmed(self, suspected: DataFrame) -> DataFrame:
        """Return the paths of `suspected` (path, type, properties, binaries) that differ as JSON.

        The database compares them as it stores them: spacing and order of members don't count.
        """

        def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = (
                row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)
            )
            with reading(self.database_url, self.name, self.snapshot) as connection:
                act_as(connection, EXPORTER)
                while some := list(itertools.islice(rows, _CONFIRMED)):
                    yield pa.RecordBatch.from_pydict({"path": list(_others(connection, some))})

        return suspected.select("path", "type", "properties", "binaries").mapInArrow(
            compare, "path string"
        )

    def _inside(self, starts: Sequence[str]) -> Callable[[int], list[dict[str, str | None]]]:
        held, top = [*starts, _END], self.top
        taken = _ranges(self.path_filter.parts_of(SubtreePart.whole(top)))

        def inside(number: int) -> list[dict[str, str | None]]:
            low, high = held[number], held[number + 1]
            both = ((max(low, first), min(high, end)) for first, end in taken)
            return [scan.bounds_below(top, *one) for one in both if one[0] < one[1]]

        return inside

    def _scattered(
        self,
        spark: SparkSession,
        numbers: Sequence[int],
        rows: Callable[[Connection, int], Iterator[tuple[Any, ...]]],
        schema: str,
    ) -> DataFrame:
        held, names = list(numbers), [column.split()[0] for column in schema.split(", ")]
        types = [_ARROW[column.split()[1]] for column in schema.split(", ")]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            wanted = [held[at] for batch in batches for at in batch.column(0).to_pylist()]
            if not wanted:
                return
            with reading(self.database_url, self.name, self.snapshot) as connection:
                act_as(connection, EXPORTER)
                found = (row for number in wanted for row in rows(connection, number))
                while some := list(itertools.islice(found, _ROWS)):
                    columns = zip(zip(*some, strict=True), types, strict=True)
                    yield pa.RecordBatch.from_arrays([pa.array(*one) for one in columns], names)

        tasks = max(1, min(len(held), spark.sparkContext.defaultParallelism * 2))
        return spark.range(0, len(held), 1, tasks).mapInArrow(run, schema)


_ARROW = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}


def _ranges(parts: Sequence[SubtreePart]) -> list[tuple[str, str]]:
    tops = [(part.top, f"{part.top}\x01") for part in parts if part.holds_top]
    return tops + [(part.low, part.high) for part in parts]


def range_starts(connection: Connection) -> list[str]:
    """Return where ranges of about equal size begin, the first of them at the very beginning."""
    act_as(connection, EXPORTER)
    return scan.range_starts(connection, least_nodes=_RANGE_NODES, most_ranges=_MOST_RANGES)


def _others(connection: Connection, rows: list[tuple[str, ...]]) -> Iterator[str]:
    try:
        with connection.transaction():
            found = scan.different(connection, rows)
    except psycopg.DataError:
        if len(rows) == 1:  # no repository holds this as JSON, so this one doesn't
            yield rows[0][0]
            return
        for row in rows:
            yield from _others(connection, [row])
        return
    yield from found
