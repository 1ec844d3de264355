"""How the tables of measures are written, beside an upkeep and against a second run.

Commits are delta-rs', like those of the archive and the upkeep: on S3 Spark's would overwrite what
another program commits at that moment (ADR 0017). Each has a transaction of the measures. A table
that another run has committed on since this one began is not touched: of two runs at once one ends,
and notes nothing. What it has written already is made anew by whoever comes next, as after a kill.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse_services.pipeline.errors import Overtaken
from packhorse_services.pipeline.measures.times import is_from
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import (
    MEASURES,
    answered,
    commit,
    load,
    prepare,
    stored,
)
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import as_they_are, written
from packhorse_services.pipeline.storage.queries import RELATION, rows
from packhorse_services.pipeline.storage.table_files import fence, files_of, taken_out, tried_again

_RUN = "packhorse-measures"
"""The id of the transactions; a table's version grows by one with each commit of a run."""


@dataclass(frozen=True, slots=True)
class MeasuresTables:
    """The tables of measures as a run has found them. Look at the archive only after this."""

    spark: SparkSession
    location: Location
    found: Mapping[str, DeltaTable]

    @classmethod
    def find(cls, spark: SparkSession, location: Location) -> "MeasuresTables":
        """Return them; those that are not there are made. Raises as `prepare` does."""
        prepare(location, MEASURES)
        return cls(spark, location, {name: stored(location, name) for name in MEASURES})

    def rows(self, name: str) -> DataFrame:
        """Return what a table had. Raises `SchemaChanged`."""
        return load(self.spark, self.location, name, self.found[name])

    def noted(self) -> list[dict[str, Any]]:
        """Return the rows of `schemas.MEASURED`."""
        return list(rows(self.found[tables.MEASURED], f"SELECT * FROM {RELATION}"))  # noqa: S608 - a constant

    @tried_again
    def replace(self, name: str, made: DataFrame, since_ms: int) -> None:
        """Put the rows of the hours from one on in the place of those that a table has.

        In one commit. The first day is written anew with its earlier hours. Raises `Overtaken`.
        """
        held = self._held(name)
        first = datetime.fromtimestamp(since_ms / 1000, UTC).date()
        gone = [one for one in files_of(held) if one.day >= first]
        whole = made.where(is_from(since_ms))
        if gone:
            others = load(self.spark, self.location, name, held).where(f.col("day") == f.lit(first))
            whole = whole.unionByName(others.where(~is_from(since_ms)))
        # One file a day, and few open at a time.
        sorted_rows = whole.repartition("day").sortWithinPartitions("day")
        added = written(sorted_rows, self.location, as_they_are(name, MEASURES[name]))
        removed = taken_out(gone, rows_go=True)
        actions = [*removed, *(file.action for file in added)]
        commit(self.location, name, held, actions, _marks(held))

    @tried_again
    def note(self, versions: Iterable[Mapping[str, Any]]) -> None:
        """Write down what the measures are made up to now. Raises `Overtaken`."""
        held = self._held(tables.MEASURED)
        shape = to_arrow_schema(schemas.MEASURED)
        with answered(self.location, tables.MEASURED, held) as identity:
            write_deltalake(
                held,
                pa.Table.from_pylist(list(versions), schema=shape),
                mode="overwrite",
                commit_properties=CommitProperties(identity, app_transactions=_marks(held)),
            )

    def _held(self, name: str) -> DeltaTable:
        """Return a table as it is now, unless another run has committed on it."""
        held = stored(self.location, name)
        if _last(held) != _last(self.found[name]):
            raise Overtaken(
                "another run of measures is at work on these tables: let it, or end it and run "
                "this one again"
            )
        return held


def _last(table: DeltaTable) -> int:
    return table.transaction_version(_RUN) or 0


def _marks(held: DeltaTable) -> list[Transaction]:
    """Return what lets a commit fail when a run or an upkeep has come since `held` was read."""
    return [Transaction(_RUN, _last(held) + 1), fence(held)]
