"""Frames that are read several times, each of them planned once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame


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
