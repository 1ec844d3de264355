"""A subscriber's content as the executors read it: in one snapshot, by ranges of paths."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from packhorse.content import scan
from packhorse.content.node import ROOT
from packhorse.content.parts import SubtreePart
from packhorse.content.property_names import as_matched
from packhorse.db.metadata import EXPORTER
from packhorse.db.roles import act_as
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.packages.region import Region
from packhorse_services.pipeline.audit.comparison import RANGE_HASHES
from packhorse_services.pipeline.engine.databases import MOST_CONNECTIONS, reading
from packhorse_services.pipeline.pieces import batches, scattered, tasks

_RANGE_NODES = 5_000
_MOST_RANGES = 4_096
_ROWS = 2_000
_CONFIRMED = 200
_END = "\U0010ffff"
"""Behind every path."""

_DIGESTS = StructType([StructField("path", StringType()), StructField("hash", LongType())])

_Range = tuple[dict[str, str | None], scan.AsAuthored]


@dataclass(frozen=True)
class Repository:
    """A subscriber's content below `top` that it takes, in the state that `snapshot` names.

    All paths are the author's, and what is left out of nodes does not count.
    """

    database_url: str
    name: str
    snapshot: str
    top: str = ROOT
    path_filter: PathFilter = EVERYTHING

    def hashes(self, spark: SparkSession, starts: Sequence[str]) -> DataFrame:
        """Return range, count and sum (as text) of every range."""

        def rows(connection: Connection, number: int) -> Iterator[tuple[Any, ...]]:
            hashes = [scan.hash_range(connection, *one) for one in inside(number)]
            total = sum(int(one) for _, one in hashes)
            yield number, sum(count for count, _ in hashes), str(total)

        inside = self._inside(starts)
        return self._scattered(spark, range(len(starts)), rows, RANGE_HASHES)

    def digests(
        self, spark: SparkSession, starts: Sequence[str], ranges: Sequence[int]
    ) -> DataFrame:
        """Return path and hash of the nodes in some of the ranges."""

        def rows(connection: Connection, number: int) -> Iterator[tuple[Any, ...]]:
            for one in inside(number):
                yield from scan.node_hashes(connection, *one)

        inside = self._inside(starts)
        return self._scattered(spark, ranges, rows, _DIGESTS)

    def confirmed(self, suspected: DataFrame) -> DataFrame:
        """Return the paths of `suspected` (path, type, properties, binaries) that differ as JSON.

        The database compares them as it stores them: spacing and order of members don't count.
        The tasks that ask it also make `suspected`, so they are as few for that.
        """
        own, placed = self.path_filter.own, self._placed()

        def compare(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = (row for batch in given for row in zip(*batch.to_pydict().values(), strict=True))
            with reading(self.database_url, self.name, self.snapshot) as connection:
                act_as(connection, EXPORTER)
                while some := list(itertools.islice(rows, _CONFIRMED)):
                    there = {own(path): (path, *rest) for path, *rest in some}
                    found = _others(connection, [(at, *there[at][1:]) for at in there], placed)
                    paths = [there[at][0] for at in found]
                    yield pa.RecordBatch.from_pydict({"path": paths})

        nodes = suspected.select("path", "type", "properties", "binaries")
        return nodes.coalesce(MOST_CONNECTIONS).mapInArrow(compare, "path string")

    def _inside(self, starts: Sequence[str]) -> Callable[[int], list[_Range]]:
        held, top = [*starts, _END], self.top
        regions = [(one, one.top_in(top) or top) for one in self.path_filter.regions_at(top)]
        taken = [
            (one, one.own(at), _ranges(one.rules.parts_of(SubtreePart.whole(at))))
            for one, at in regions
        ]

        def inside(number: int) -> list[_Range]:
            low, high = held[number], held[number + 1]
            return [
                (scan.bounds_below(at, *map(region.own, both)), self._placed(region))
                for region, at, ranges in taken
                for first, end in ranges
                for both in [(max(low, first), min(high, end))]
                if both[0] < both[1]
            ]

        return inside

    def _placed(self, region: Region = EVERYTHING.regions[0]) -> scan.AsAuthored:
        moved = ("", "") if region.source == ROOT else (region.source, region.target)
        return scan.AsAuthored(*moved, *as_matched(self.path_filter.exclude_properties))

    def _scattered(
        self,
        spark: SparkSession,
        numbers: Sequence[int],
        rows: Callable[[Connection, int], Iterator[tuple[Any, ...]]],
        schema: StructType,
    ) -> DataFrame:
        shape = to_arrow_schema(schema)

        def run(own: Iterable[int]) -> Iterator[pa.RecordBatch]:
            with reading(self.database_url, self.name, self.snapshot) as connection:
                act_as(connection, EXPORTER)
                found = (row for number in own for row in rows(connection, number))
                yield from batches(found, shape, _ROWS)

        return scattered(spark, numbers, run, schema, most=min(tasks(spark), MOST_CONNECTIONS))


def _ranges(parts: Sequence[SubtreePart]) -> list[tuple[str, str]]:
    tops = [(part.top, f"{part.top}\x01") for part in parts if part.holds_top]
    return tops + [(part.low, part.high) for part in parts]


def range_starts(connection: Connection) -> list[str]:
    """Return where ranges of about equal size begin, the first of them at the very beginning."""
    act_as(connection, EXPORTER)
    return scan.range_starts(connection, least_nodes=_RANGE_NODES, most_ranges=_MOST_RANGES)


def _others(
    connection: Connection, rows: list[tuple[str, ...]], placed: scan.AsAuthored
) -> Iterator[str]:
    try:
        with connection.transaction():
            found = scan.different(connection, rows, placed)
    except psycopg.DataError:
        if len(rows) == 1:  # no repository holds this as JSON, so this one doesn't
            yield rows[0][0]
            return
        for row in rows:
            yield from _others(connection, [row], placed)
        return
    yield from found
