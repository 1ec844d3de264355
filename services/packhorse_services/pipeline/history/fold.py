"""Events to the content at an offset: the result of importing the packages in their order.

Of a path, let w be its last write, c the last clear that covers it, d the last write below it.
It holds what w wrote if w >= c; else it is a folder if d >= c, for every write makes the folders
above it that are missing; else it is absent. All of that is decided on paths and numbers; texts
are fetched afterwards, of the writes that have won (ADR 0020).

A bulk distribution clears its deep path part by part. The parts of one deep path are made into
pieces that do not overlap, each with its highest offset, so that a path is looked up by halving.
"""

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from packhorse.content.node import ROOT, parent_of, subtree_range
from packhorse.content.tree import FOLDER
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.decoding import CLEAR, UNREADABLE, WRITE

_DIGITS = 15


def hash_of(path: str, node_type: str, properties: str, binaries: str) -> int:
    """Return a node's hash, a number below 2 to the 60; `binaries` as Postgres writes them."""
    text = f"{path}\n{node_type}\n{properties}\n{binaries}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:_DIGITS], 16)


def node_hash(*columns: str | Column) -> Column:
    """Return the same of columns: path, type, properties, binaries."""
    text = f.concat_ws("\n", *columns)
    digits = f.substring(f.sha2(text.cast("binary"), 256), 1, _DIGITS)
    return f.conv(digits, 16, 10).cast("long")


NOWHERE = -1
_END = "0"
"""Sorts behind every path, which begins with a slash."""

Part = tuple[str, str, int]
"""From, to, offset; an empty `to` is the end."""


class PackageParts:
    """Looks up by path. Memory: three texts or so for each distinct part."""

    def __init__(self, clears: Iterable[tuple[str, str, str, int]]) -> None:
        """Take the clears of parts: deep path, from, to, offset."""
        newest: dict[tuple[str, str, str], int] = {}
        for path, low, high, offset in clears:
            part = (path, low, high)
            newest[part] = max(offset, newest.get(part, NOWHERE))
        of_path: dict[str, list[Part]] = defaultdict(list)
        for (path, low, high), offset in newest.items():
            of_path[path].append((low, high, offset))
        self._pieces = {path: _pieces(parts) for path, parts in of_path.items()}

    def __len__(self) -> int:
        """Return of how many deep paths there are parts."""
        return len(self._pieces)

    def last_clear(self, path: str) -> int:
        """Return the highest offset of a part that covers `path`, or `NOWHERE`."""
        last, above = NOWHERE, path
        while True:
            if pieces := self._pieces.get(above):
                starts, offsets = pieces
                at = bisect_right(starts, path) - 1
                last = max(last, offsets[at] if at >= 0 else NOWHERE)
            if above == ROOT:
                return last
            above = parent_of(above)

    def edges(self) -> list[str]:
        """Return where what is covered begins and ends, by turns, in path order."""
        covered = sorted(piece for own in self._pieces.items() for piece in _covered_of(*own))
        found: list[str] = []
        for low, high in covered:
            if found and low <= found[-1]:
                found[-1] = max(found[-1], high)
            else:
                found += (low, high)
        return found


def _covered_of(path: str, pieces: tuple[list[str], list[int]]) -> Iterator[tuple[str, str]]:
    """Yield from where to where paths are covered by pieces of a deep path."""
    subtree = [(path, f"{path}\0"), subtree_range(path)]
    for (low, high), offset in zip(pairwise(pieces[0]), pieces[1], strict=False):
        for first, end in subtree if offset > NOWHERE else ():
            if max(low, first) < min(high, end):
                yield max(low, first), min(high, end)


def _pieces(parts: Iterable[Part]) -> tuple[list[str], list[int]]:
    """Return where pieces begin, in order, and the highest offset that covers each."""
    waiting = sorted((low, high or _END, offset) for low, high, offset in parts)
    edges = sorted({edge for low, high, _ in waiting for edge in (low, high)})
    open_parts: list[tuple[int, str]] = []
    offsets, at = [], 0
    for edge in edges:
        while at < len(waiting) and waiting[at][0] <= edge:
            heappush(open_parts, (-waiting[at][2], waiting[at][1]))
            at += 1
        while open_parts and open_parts[0][1] <= edge:
            heappop(open_parts)
        offsets.append(-open_parts[0][0] if open_parts else NOWHERE)
    return edges, offsets


MAX_PARTS = 500_000
"""Clears of parts that the driver holds; 100 bytes or so each."""

_FEW_CLEARS = 20_000
"""Up to so many cleared paths are looked up as parts are; more are joined."""

MERE_FOLDER = -1
"""The `position` of a node that nothing wrote: it is there for what lies below it."""

_REPORTED = 20
WON = ("path", "offset", "position", "package_id", "size", "hash")
"""The columns of `fold`."""


def fold(events: DataFrame) -> DataFrame:
    """Return the places that have content after `events`, and what put it there.

    Columns: path, offset, position, package_id, size, hash; where the node's texts are, how many
    characters they have, and its hash (`hash_of`). `offset` and `package_id` are those of the
    package that wrote the node, or of the last one that wrote below it where the node is a mere
    folder; a node of a base (`fold_onto`) has the base's offset and no id. Each path comes once,
    in no order.

    Reads the events at once for what can't be joined, so hand it frames that are `kept`. Raises
    `TaskRefused` naming the packages that can't be read.
    """
    return decided(events, writes_of(events), *clears_of(events))


def writes_of(events: DataFrame) -> DataFrame:
    """Return what is written, in the columns of `fold`."""
    return events.where(f.col("kind") == WRITE).select(*WON)


def decided(
    events: DataFrame, written: DataFrame, clears: PackageParts, many: DataFrame | None = None
) -> DataFrame:
    """Return what `fold` does, of all writes."""
    places = _covered(_last_writes(events, written), clears, many)
    by_write = f.coalesce(f.col("w.offset") >= f.col("c"), f.lit(False))
    return places.where(by_write | (f.col("d.offset") >= f.col("c"))).select(
        "path",
        *(
            f.when(by_write, f.col(f"w.{name}")).otherwise(own).alias(name)
            for name, own in _folder().items()
        ),
    )


def _folder() -> dict[str, Column]:
    """Return what a place has that exists only because `d` wrote below it."""
    nothing = f.lit("{}")
    return {
        "offset": f.col("d.offset"),
        "position": f.lit(MERE_FOLDER),
        "package_id": f.col("d.package_id"),
        "size": (f.length("path") + f.lit(4)).cast("long"),
        "hash": node_hash("path", f.lit(FOLDER), nothing, nothing),
    }


def clears_of(events: DataFrame) -> tuple[PackageParts, DataFrame | None]:
    """Return the clears to look up, and as a frame those of whole paths where these are many.

    Raises `TaskRefused` where packages can't be read: the same pass finds them.
    """
    whole = (
        events.where((f.col("kind") == CLEAR) & ~_is_part())
        .groupBy(f.col("path").alias("cleared"))
        .agg(f.max("offset").alias("cleared_at"))
    )
    parts = _parts(events)
    few = whole.limit(_FEW_CLEARS + 1).collect()
    if len(few) > _FEW_CLEARS:
        return PackageParts(parts), whole
    return PackageParts([*parts, *((row.cleared, "", "", row.cleared_at) for row in few)]), None


def _parts(events: DataFrame) -> list[tuple[str, str, str, int]]:
    """Return the clears of parts, which are few: one for each package of a bulk distribution.

    Raises `TaskRefused` where packages can't be read: the same pass finds them.
    """
    unjoined = (f.col("kind") == UNREADABLE) | ((f.col("kind") == CLEAR) & _is_part())
    own = f.when(f.col("kind") == UNREADABLE, f.col("offset"))  # each of these is reported
    columns = ("kind", "path", "range_from", "range_to")
    newest = (
        events.where(unjoined)
        .groupBy(*columns, own.alias("own"))
        .agg(f.max("offset").alias("offset"))
    )
    rows = newest.limit(MAX_PARTS + 1).collect()  # bounded
    _require_readable([row for row in rows if row.kind == UNREADABLE])
    if len(rows) > MAX_PARTS:
        raise TaskRefused(
            f"the history has more than {MAX_PARTS} parts of subtrees; "
            "make snapshots more often, each begins where the last one ended"
        )
    return [(row.path, row.range_from, row.range_to, row.offset) for row in rows]


def _require_readable(unreadable: list[Row]) -> None:
    """Raise `TaskRefused` with some of the packages that can't be read, and why."""
    if unreadable:
        unreadable.sort(key=lambda row: int(row.offset))
        listed = "; ".join(f"offset {row.offset}: {row.path}" for row in unreadable[:_REPORTED])
        more = f"; and {len(unreadable) - _REPORTED} more" if len(unreadable) > _REPORTED else ""
        raise TaskRefused(
            f"packages can't be read ({listed}{more}); if every subscriber has removed them, "
            "leave them out with --leave-out and their offset"
        )


def _is_part() -> Column:
    return (f.col("range_from") != "") | (f.col("range_to") != "")


def _last_writes(events: DataFrame, written: DataFrame) -> DataFrame:
    """Return path, w (its last write), d (offset and package id of the last one below it)."""
    d = f.struct("offset", "package_id").alias("d")
    of_folders = (
        events.where(f.col("kind") == WRITE)
        .select(f.explode(_ancestors("path")).alias("path"), d)
        .groupBy("path")
        .agg(f.max("d").alias("d"))  # few: they are many writes' folders
    )
    at = written.select("path", f.struct(*WON[1:]).alias("w"))
    every = at.unionByName(of_folders, allowMissingColumns=True)
    return every.groupBy("path").agg(f.max("w").alias("w"), f.max("d").alias("d"))


def _covered(paths: DataFrame, clears: PackageParts, many: DataFrame | None) -> DataFrame:
    """Add c, the offset of the last clear that covers the path, or -1."""
    found = paths.withColumn("c", f.lit(NOWHERE).cast("long"))
    if many is not None:
        above = f.array_union(f.array(f.col("path"), f.lit(ROOT)), _ancestors("path"))
        last = (
            paths.select("path", f.explode(above).alias("cleared"))
            .join(many, "cleared")
            .groupBy("path")
            .agg(f.max("cleared_at").alias("cleared_at"))
        )
        found = paths.join(last, "path", "left").select(
            "path", "w", "d", f.coalesce("cleared_at", f.lit(NOWHERE)).alias("c")
        )
    if not len(clears):
        return found
    newest = f.greatest("c", "p").alias("c")
    return _looked_up(found, clears).select("path", "w", "d", newest)


def _looked_up(paths: DataFrame, clears: PackageParts) -> DataFrame:
    """Add p, the offset of the last clear that covers the path, or `NOWHERE`."""

    def look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = batch.column("path").to_pylist()
            found = pa.array([clears.last_clear(path) for path in column], pa.int64())
            yield batch.append_column("p", found)

    return paths.mapInArrow(look_up, f"{_ddl(paths)}, p bigint")


def _ddl(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def _ancestors(path: str) -> Column:
    """Return the paths above, without the root."""
    parts = f.split(path, "/")
    count = f.size(parts)
    depths = f.filter(f.sequence(f.lit(2), f.greatest(count, f.lit(2))), lambda n: n < count)
    return f.transform(depths, lambda depth: f.array_join(f.slice(parts, 1, depth), "/"))
