"""Content against content: hashes over ranges of paths, digests of paths, and what they show.

A node's hash is computed alike in Postgres and by `hash_of`. A range's is how many nodes it has,
and the sum of theirs.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from packhorse.content.node import ROOT
from packhorse.content.tree import FOLDER
from packhorse_services.pipeline.history.content import ContentHistory
from packhorse_services.pipeline.history.fold import node_hash
from packhorse_services.pipeline.history.node_lists import sorted_by_path
from packhorse_services.pipeline.history.onto_base import runs_of

MISSING = "missing"
EXTRA = "extra"
DIFFERENT = "different"


RangeHash = tuple[int, int, str]
"""A range's number, how many nodes it has, and the sum of their hashes as text."""

RANGE_HASHES = StructType(
    [
        StructField("range", IntegerType()),
        StructField("count", LongType()),
        StructField("sum", StringType()),
    ]
)
"""The same as columns."""

_SUMS = to_arrow_schema(RANGE_HASHES)


def range_hashes(content: ContentHistory, starts: Sequence[str]) -> list[RangeHash]:
    """Return what each range has that has nodes.

    A range begins at one of `starts`, which are in order and begin with the empty text.
    """
    held = list(starts)

    def summed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sums_of(held, batches).items()
        rows = [{"range": at, "count": had[0], "sum": str(had[1])} for at, had in found]
        yield pa.RecordBatch.from_pylist(rows, _SUMS)

    every: dict[int, tuple[int, int]] = {}
    for at, count, total in content.mapped(summed, RANGE_HASHES).collect():
        before = every.get(at, (0, 0))
        every[at] = (before[0] + count, before[1] + int(total))
    return [(at, count, str(total)) for at, (count, total) in every.items()]


def sums_of(starts: Sequence[str], batches: Iterable[pa.RecordBatch]) -> dict[int, tuple[int, int]]:
    """Return count and sum of the nodes of each range that batches have."""
    found: dict[int, tuple[int, int]] = {}
    for batch in map(sorted_by_path, batches):
        paths, hashes = batch.column("path"), batch.column("hash")
        for begun, start, stop in runs_of(starts, paths):
            count, total = found.get(begun - 1, (0, 0))
            more = sum(hashes[start:stop].to_pylist())  # Arrow's own sum would overflow
            found[begun - 1] = (count + stop - start, total + more)
    return found


def in_ranges(starts: Sequence[str], ranges: Collection[int]) -> Callable[[str], bool]:
    """Return whether a path is in one of these ranges."""
    held, wanted = list(starts), frozenset(ranges)
    return lambda path: bisect_right(held, path) - 1 in wanted


def differing(expected: Iterable[RangeHash], found: Iterable[RangeHash]) -> list[int]:
    """Return the ranges whose count or sum differ, in order; a range without nodes has neither."""
    here = {number: (count, total) for number, count, total in expected if count}
    there = {number: (count, total) for number, count, total in found if count}
    return sorted(number for number in here.keys() | there if here.get(number) != there.get(number))


def difference(expected: DataFrame, found: DataFrame, folders: Collection[str] = ()) -> DataFrame:
    """Return path, kind, offset and package_id of each path that is not the same in both.

    Of the same ranges, `expected` has the columns of `fold`, `found` has path and hash. What is
    different by its texts may still be equal JSON. At the paths of `folders` a mere folder is the
    same as nothing.
    """
    wanted = expected.select("path", f.col("hash").alias("wanted"), "offset", "package_id")
    joined = wanted.join(found, "path", "full_outer")
    if folders:
        folder = node_hash("path", f.lit(FOLDER), f.lit("{}"), f.lit("{}"))
        nothing = [f.coalesce(side, folder) == folder for side in ("wanted", "hash")]
        joined = joined.where(~(f.col("path").isin(*folders) & nothing[0] & nothing[1]))
    kind = (
        f.when(f.col("hash").isNull(), MISSING)
        .when(f.col("wanted").isNull(), EXTRA)
        .when(f.col("hash") != f.col("wanted"), DIFFERENT)
    )
    return joined.select("path", kind.alias("kind"), "offset", "package_id").where(
        f.col("kind").isNotNull()
    )


def removals_of(extra: DataFrame, clears: DataFrame) -> DataFrame:
    """Return path, offset and package_id of the last clear that should have removed each path."""
    parts = f.split("path", "/")
    depths = f.sequence(f.lit(2), f.size(parts))
    above = f.transform(depths, lambda depth: f.array_join(f.slice(parts, 1, depth), "/"))
    covering = f.array_union(f.array(f.lit(ROOT)), above)
    cleared = clears.select(
        f.col("path").alias("cleared"), "range_from", "range_to", "offset", "package_id"
    )
    begun = (f.col("range_from") == "") | (f.col("path") >= f.col("range_from"))
    not_ended = (f.col("range_to") == "") | (f.col("path") < f.col("range_to"))
    last = f.max(f.struct("offset", "package_id")).alias("last")
    return (
        extra.select("path", f.explode(covering).alias("cleared"))
        .join(cleared, "cleared")
        .where(begun & not_ended)
        .groupBy("path")
        .agg(last)
        .select("path", "last.offset", "last.package_id")
    )
