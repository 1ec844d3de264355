"""What tasks share: pieces of work, the rows they yield to Arrow, frames read several times."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.types import StructType

_TASKS_OF_A_CORE = 2

T = TypeVar("T")
R = TypeVar("R", bound=Sequence[Any])


def cores(spark: SparkSession) -> int:
    """Return how many tasks the session works on at a time."""
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,.*)?\])?", spark.sparkContext.master or "")
    if local is None:
        return spark.sparkContext.defaultParallelism
    if local[1] == "*":  # as the JVM counts them, which knows of a container's limit
        machine: Any = spark._jvm
        return int(machine.java.lang.Runtime.getRuntime().availableProcessors())
    return int(local[1] or 1)


def tasks(spark: SparkSession) -> int:
    """Return into how many tasks work is divided whose pieces are about alike."""
    return cores(spark) * _TASKS_OF_A_CORE


def scattered(
    spark: SparkSession,
    pieces: Sequence[T],
    run: Callable[[Iterable[T]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
    most: int | None = None,
) -> DataFrame:
    """Return what `run` makes of pieces, in up to `most` tasks, by default `tasks` of them.

    It is called once in a task, with the neighbouring pieces that the task has: one at least.
    """
    given = list(pieces)

    def run_own(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = [given[at] for batch in batches for at in batch.column(0).to_pylist()]
        if own:
            yield from run(own)

    count = max(1, min(len(given), tasks(spark) if most is None else most))
    return spark.range(0, len(given), 1, count).mapInArrow(run_own, schema)


def batches(
    rows: Iterable[R],
    schema: pa.Schema,
    most: int,
    *,
    size: Callable[[R], int] = lambda _: 0,
    most_size: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of up to `most`, each ended once the sizes of its rows are `most_size`.

    Of the rows no more is held than one batch has.
    """
    held: list[R] = []
    total = 0
    for row in rows:
        held.append(row)
        total += size(row)
        if len(held) >= most or total >= most_size:
            yield _batch(held, schema)
            held, total = [], 0
    if held:
        yield _batch(held, schema)


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    arrays = [pa.array(column, one.type) for column, one in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep a frame that is read several times on the workers' disks while the block lasts.

    What is made of it is planned from here on: a frame that is merely persisted has the plans of
    all that it came from, and Spark analyses those again with each step behind it. A lost worker's
    part is computed again, unlike that of a checkpoint.
    """
    rows = _without_its_plan(frame).persist(StorageLevel.DISK_ONLY)
    try:
        yield rows
    finally:
        rows.unpersist()


def _without_its_plan(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows whose plan begins with them, as `foreachBatch` is given."""
    session, planned = frame.sparkSession, cast(ClassicFrame, frame)._jdf
    rows = planned.queryExecution().toRdd()
    return ClassicFrame(
        session._jsparkSession.internalCreateDataFrame(rows, planned.schema(), False), session
    )
