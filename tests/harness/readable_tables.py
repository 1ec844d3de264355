"""Tables of the pipeline with rows of every kind, and the filters that must find them."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from packhorse_services.pipeline.storage.delta import (
    ARCHIVE,
    MEASURES,
    BatchMark,
    append,
    prepare,
    stored,
)
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import Files
from packhorse_services.pipeline.storage.statistics import has_bounds

TABLES: Mapping[str, StructType] = {**ARCHIVE, **MEASURES}
WRITTEN = [name for name in TABLES if "day" in TABLES[name].names]  # the rest is delta-rs' own
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


VALUES: Mapping[Callable[[pa.DataType], bool], Sequence[Any]] = {
    pa.types.is_string: ["t", "/site/" + "long" * 20, "Straße", "\U0001f40e" * 40],
    pa.types.is_timestamp: [NOON, NOON + timedelta(microseconds=1), NOON - timedelta(days=1)],
    pa.types.is_date: [date(2026, 11, 20), date(2026, 11, 21)],
    pa.types.is_boolean: [False, True],
    pa.types.is_integer: [-1, 0, 2**31 - 1],
    pa.types.is_binary: [b"", b"\xff"],
}


def value(kind: pa.DataType, chance: random.Random) -> Any:
    if pa.types.is_list(kind):
        return [value(kind.value_type, chance) for _ in range(chance.randrange(3))]
    if pa.types.is_struct(kind):
        return {one.name: value(one.type, chance) for one in kind}
    return chance.choice(next(values for is_one, values in VALUES.items() if is_one(kind)))


def content(shape: pa.Schema, seed: int) -> pa.RecordBatch:
    chance = random.Random(seed)
    columns = [
        pa.array(
            [
                None if one.nullable and chance.random() < 0.3 else value(one.type, chance)
                for _ in range(10)
            ],
            one.type,
        )
        for one in shape
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shape)


def made(location: Location, name: str) -> tuple[DeltaTable, pa.Table]:
    """Return a table that was written in two commits, and what is in it."""
    prepare(location, {name: TABLES[name]})
    shape = to_arrow_schema(TABLES[name], timezone="UTC")
    batches = [content(shape, seed) for seed in (1, 2)]
    for number, batch in enumerate(batches):
        files = Files(location)
        files.add(name, batch)
        actions = [file.action for file in files.close()]
        append(location, name, BatchMark(number, number + 1), actions)
    return stored(location, name), pa.Table.from_batches(batches)


def filters(whole: pa.Table, *, one_of_a_type: bool = False) -> Iterator[tuple[str, Any, int]]:
    """Each column that can be ordered, some values in it, and in how many rows they are.

    Files and readers know the type of a column: one of each type may be enough.
    """
    left_out = set()
    for column in whole.schema:
        if column.type in left_out:
            continue
        if has_bounds(column.type) or pa.types.is_date(column.type):
            left_out |= {column.type} if one_of_a_type else set()
            for one in pc.unique(whole.column(column.name)).drop_null().to_pylist()[-2:]:
                yield column.name, one, pc.sum(pc.equal(whole.column(column.name), one)).as_py()
