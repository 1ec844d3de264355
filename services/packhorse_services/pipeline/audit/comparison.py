"""Content against content: hashes over ranges of paths, digests of paths, and what they show.

A node's hash is computed alike in Postgres and by `hash_of`. A range's is how many nodes it has,
and the sum of theirs.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from packhorse.content.node import ROOT, subtree_range
from packhorse.content.tree import FOLDER
from packhorse.packages.path_filter import PathFilter
from packhorse_services.pipeline.history.fold import node_hash

MISSING = "missing"
EXTRA = "extra"
DIFFERENT = "different"


def within(path: str) -> Column:
    """Return whether a row's path is `path` or lies below it."""
    if path == ROOT:
        return f.lit(True)
    low, high = subtree_range(path)
    column = f.col("path")
    return (column == path) | ((column >= low) & (column < high))


def taken(content: DataFrame, path_filter: PathFilter) -> DataFrame:
    """Return the rows whose `path` a subscriber takes (R35)."""
    if path_filter.holds_all:
        return content

    def some(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column("path").to_pylist()
            yield batch.filter(pa.array([path_filter.holds(path) for path in paths], pa.bool_()))

    return content.mapInArrow(some, content.schema)


def in_ranges(content: DataFrame, starts: Sequence[str]) -> DataFrame:
    """Return path, hash, offset, package_id and `range`: the last of `starts` not above the path.

    `starts` are in order and begin with the empty text.
    """
    held = list(starts)

    def number(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column("path").to_pylist()
            places = pa.array([bisect_right(held, path) - 1 for path in paths], pa.int32())
            yield batch.append_column("range", places)

    hashed = content.select("path", "hash", "offset", "package_id")
    return hashed.mapInArrow(
        number, "path string, hash long, offset long, package_id string, range int"
    )


def range_hashes(ranged: DataFrame) -> DataFrame:
    """Return range, count and sum (as text) of each range that has nodes."""
    total = f.sum(f.col("hash").cast("decimal(20,0)")).cast("decimal(38,0)").cast("string")
    return ranged.groupBy("range").agg(f.count("*").alias("count"), total.alias("sum"))


def differing(
    expected: Iterable[tuple[int, int, str]], found: Iterable[tuple[int, int, str]]
) -> list[int]:
    """Return the ranges whose count or sum differ, in order; a range without nodes has neither."""
    here = {number: (count, total) for number, count, total in expected if count}
    there = {number: (count, total) for number, count, total in found if count}
    return sorted(number for number in here.keys() | there if here.get(number) != there.get(number))


def difference(
    expected: DataFrame, found: DataFrame, ranges: Collection[int], folders: Collection[str] = ()
) -> DataFrame:
    """Return path, kind, offset and package_id of each path that is not the same in both.

    `expected` has the columns of `in_ranges`; `found` has path and hash, of these ranges alone.
    What is different by its texts may still be equal JSON. At the paths of `folders` a mere folder
    is the same as nothing.
    """
    wanted = expected.where(f.col("range").isin(list(ranges))).select(
        "path", f.col("hash").alias("wanted"), "offset", "package_id"
    )
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
