"""Events to the content at an offset: the result of importing the packages in their order.

Of a path, let w be its last write, c the last clear that covers it, d the last write below it.
It holds what w wrote if w >= c; else it is a folder if d >= c, for every write makes the folders
above it that are missing; else it is absent. All of that is decided on paths and numbers; texts
are fetched afterwards, of the writes that have won (ADR 0020).
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from packhorse.content.node import ROOT
from packhorse.content.tree import FOLDER
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.decoding import CLEAR, UNREADABLE, WRITE
from packhorse_services.pipeline.history.hashes import node_hash
from packhorse_services.pipeline.history.parts import Parts

MAX_PARTS = 500_000
"""Clears of parts that the driver holds; 100 bytes or so each."""

MERE_FOLDER = -1
"""The `position` of a node that nothing wrote: it is there for what lies below it."""

_TOLD = 20
_WON = ("path", "offset", "position", "package_id", "size", "hash")


def fold(events: DataFrame, base: DataFrame | None = None, base_offset: int = -1) -> DataFrame:
    """Return the places that have content after `events`, and what put it there.

    Columns: path, offset, position, package_id, size, hash; where the node's texts are, how many
    characters they have, and its hash (`hash_of`). `base` is the content at `base_offset` (columns
    path, position, size, hash); then only events above that count. `offset` and `package_id` are
    those of the package that wrote the node, or of the last one that wrote below it where the node
    is a mere folder; a node of the base has `base_offset` and no id. Each path comes once, in no
    order.

    Reads the events at once for what can't be joined, so hand it frames that are `kept`. Raises
    `TaskRefused` naming the packages that can't be read.
    """
    events = events.where(f.col("offset") > base_offset)
    parts = _parts(events)
    written = _written(events, base, base_offset)
    decided = _covered(_last_writes(events, written), events, parts)
    alive = decided.where((f.col("w.offset") >= f.col("c")) | (f.col("d") >= f.col("c")))
    by_write = f.coalesce(f.col("w.offset") >= f.col("c"), f.lit(False))
    return (
        alive.where(by_write)
        .select("path", *[f"w.{name}" for name in _WON[1:]])
        .unionByName(_folders(alive.where(~by_write), events))
    )


def _parts(events: DataFrame) -> Parts:
    """Return the clears of parts, which are few: one for each package of a bulk distribution.

    Raises `TaskRefused` where packages can't be read: the same pass finds them.
    """
    unjoined = (f.col("kind") == UNREADABLE) | ((f.col("kind") == CLEAR) & _is_part())
    own = f.when(f.col("kind") == UNREADABLE, f.col("offset"))  # each of these is told
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
    return Parts((row.path, row.range_from, row.range_to, row.offset) for row in rows)


def _require_readable(unreadable: list[Row]) -> None:
    """Raise `TaskRefused` with some of the packages that can't be read, and why."""
    if unreadable:
        unreadable.sort(key=lambda row: int(row.offset))
        listed = "; ".join(f"offset {row.offset}: {row.path}" for row in unreadable[:_TOLD])
        more = f"; and {len(unreadable) - _TOLD} more" if len(unreadable) > _TOLD else ""
        raise TaskRefused(
            f"packages can't be read ({listed}{more}); if every subscriber has removed them, "
            "leave them out with --leave-out and their offset"
        )


def _is_part() -> Column:
    return (f.col("range_from") != "") | (f.col("range_to") != "")


def _written(events: DataFrame, base: DataFrame | None, base_offset: int) -> DataFrame:
    """Return all writes, those of the base among them."""
    writes = events.where(f.col("kind") == WRITE).select(*_WON)
    if base is None:
        return writes
    placed = base.withColumns({"offset": f.lit(base_offset).cast("long"), "package_id": f.lit("")})
    return placed.select(*_WON).unionByName(writes)


def _last_writes(events: DataFrame, written: DataFrame) -> DataFrame:
    """Return path, w (its last write), d (offset of the last one below)."""
    at = written.select("path", f.struct(*_WON[1:]).alias("w"), f.lit(None).cast("long").alias("d"))
    below = (
        events.where(f.col("kind") == WRITE)
        .select(f.explode(_ancestors("path")).alias("path"), f.col("offset").alias("d"))
        .groupBy("path")
        .agg(f.max("d").alias("d"))  # few: they are many writes' folders
        .select("path", f.lit(None).cast(at.schema["w"].dataType).alias("w"), "d")
    )
    return at.unionByName(below).groupBy("path").agg(f.max("w").alias("w"), f.max("d").alias("d"))


def _covered(paths: DataFrame, events: DataFrame, parts: Parts) -> DataFrame:
    """Add c, the offset of the last clear that covers the path, or -1."""
    clears = (
        events.where((f.col("kind") == CLEAR) & ~_is_part())
        .groupBy(f.col("path").alias("cleared"))
        .agg(f.max("offset").alias("cleared_at"))
    )
    above = f.array_union(f.array(f.col("path"), f.lit(ROOT)), _ancestors("path"))
    last = (
        paths.select("path", f.explode(above).alias("cleared"))
        .join(clears, "cleared")
        .groupBy("path")
        .agg(f.max("cleared_at").alias("cleared_at"))
    )
    whole = paths.join(last, "path", "left").select(
        "path", "w", "d", f.coalesce("cleared_at", f.lit(-1)).alias("c")
    )
    return _covered_by_parts(whole, parts) if len(parts) else whole


def _covered_by_parts(paths: DataFrame, parts: Parts) -> DataFrame:
    def look_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = batch.column("path").to_pylist()
            yield batch.append_column(
                "p", pa.array([parts.last_clear(path) for path in column], pa.int64())
            )

    found = paths.mapInArrow(look_up, f"{_ddl(paths)}, p bigint")
    return found.select("path", "w", "d", f.greatest("c", "p").alias("c"))


def _ddl(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def _folders(missing: DataFrame, events: DataFrame) -> DataFrame:
    """Return the nodes that exist only because something lies below them."""
    ids = events.where(f.col("kind") == WRITE).select("offset", "package_id").distinct()
    nothing = f.lit("{}")
    return (
        missing.select("path", f.col("d").alias("offset"))
        .join(ids, "offset")
        .select(
            "path",
            "offset",
            f.lit(MERE_FOLDER).alias("position"),
            "package_id",
            (f.length("path") + f.lit(4)).cast("long").alias("size"),
            node_hash("path", f.lit(FOLDER), nothing, nothing).alias("hash"),
        )
    )


def _ancestors(path: str) -> Column:
    """Return the paths above, without the root."""
    parts = f.split(path, "/")
    count = f.size(parts)
    depths = f.filter(f.sequence(f.lit(2), f.greatest(count, f.lit(2))), lambda n: n < count)
    return f.transform(depths, lambda depth: f.array_join(f.slice(parts, 1, depth), "/"))
