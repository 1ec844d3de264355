"""The archive's tables as Delta keeps them: made, checked, and fenced by transaction versions.

The archive commits each batch under one application id and a version that grows with the offsets,
so that a table takes it once, and refuses who begins behind what it has.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from packhorse_services.pipeline.errors import Overtaken, TablesUnusable
from packhorse_services.pipeline.storage import columns, schemas, tables
from packhorse_services.pipeline.storage.location import Location, store_error

SILVER: Mapping[str, StructType] = {
    tables.QUARANTINE: schemas.QUARANTINE,
    tables.PACKAGES: schemas.PACKAGES,
    tables.STATUSES: schemas.STATUSES,
    tables.COMMAND_STATUSES: schemas.COMMAND_STATUSES,
    tables.ANNOUNCEMENTS: schemas.ANNOUNCEMENTS,
    tables.COMMANDS: schemas.COMMANDS,
    tables.EVENTS: schemas.EVENTS,
}
"""What a batch is decoded to, in the order in which it is committed."""

LAST = tables.EVENTS
"""The last one, which has a transaction of every batch."""

ARCHIVE: Mapping[str, StructType] = {
    tables.BRONZE: schemas.BRONZE,
    tables.GAPS: schemas.GAPS,
    **SILVER,
}

MEASURES: Mapping[str, StructType] = {
    tables.MEASURED: schemas.MEASURED,
    tables.PUBLISHING: schemas.PUBLISHING,
    tables.FAILURES: schemas.FAILURES,
    tables.SLOWEST: schemas.SLOWEST,
    tables.DELIVERY: schemas.DELIVERY,
    tables.SUBSCRIPTIONS: schemas.SUBSCRIPTIONS,
}
"""What a run of the measures writes, the last one read first: it is never older than the rest."""

APPLICATION = "packhorse-archive"
"""The id of the archive's transactions in the log of each of its tables."""

_COMMIT = "packhorse-commit"
"""Where the log of a table has the id that its writer gave a commit."""

FEED = "delta.enableChangeDataFeed"
"""Of silver: the measures ask which rows are new. It costs nothing where rows are only added."""

_LOG = {"delta.logRetentionDuration": "interval 8 days"}
"""A commit every 10 s makes 8,640 files a day, which who opens the table lists; Delta would keep 30
days of them. The measures go back 6 days at most, and the vacuum keeps what 7 days name."""


@dataclass(frozen=True, slots=True)
class BatchMark:
    """A batch of the archive as its transactions tell it: versions that grow with the offsets."""

    before: int
    """The version where it begins. A table that is past it is another run's by now."""
    version: int
    """The version where it ends."""


def partitions(schema: StructType) -> list[str]:
    """Return the columns by which a table with these columns is partitioned."""
    return [name for name in ("topic", "day") if {name, "day"} <= set(schema.fieldNames())]


def prepare(location: Location, wanted: Mapping[str, StructType] = ARCHIVE) -> None:
    """Make tables that are not there. Raises `SchemaChanged`, and what `store_error` returns."""
    for name, schema in wanted.items():
        try:
            _prepare(location, name, schema)
        except (DeltaError, OSError) as error:
            raise store_error(f"{location.delta_uri(name)} can't hold a table", error) from error


def _prepare(location: Location, name: str, schema: StructType) -> None:
    held = opened(location, name)
    if held is not None:
        found = StructType.fromJson(json.loads(held.schema().to_json()))
        columns.compare(found, schema, name)
        return
    deltalake.DeltaTable.create(
        location.delta_uri(name),
        schema=deltalake.Schema.from_json(_nullable(schema)),
        partition_by=partitions(schema) or None,
        mode="ignore",
        description=tables.MEANINGS.get(name),
        configuration={FEED: str(name in SILVER).lower(), **_LOG},
        storage_options=location.delta_options(),
    )


def opened(
    location: Location, table: str, version: int | None = None
) -> deltalake.DeltaTable | None:
    """Return a table as it is now or was at a version, without Spark; None when it is not there.

    Raises `DeltaError` and `OSError` when it can't be read, which may pass.
    """
    uri, options = location.delta_uri(table), location.delta_options()
    try:
        return deltalake.DeltaTable(uri, version=version, storage_options=options)
    except TableNotFoundError:
        return None


def stored(location: Location, table: str, version: int | None = None) -> deltalake.DeltaTable:
    """Return the same. Raises `TablesUnusable` when it is not there, and as `opened` does."""
    found = opened(location, table, version)
    if found is None:
        made = "; run packhorse-pipeline archive first" if table in tables.MEANINGS else ""
        raise TablesUnusable(f"there is no table {table} at {location.base}{made}")
    return found


def last_version(location: Location, table: str) -> int | None:
    """Return the version of the archive's last transaction in a table."""
    return stored(location, table).transaction_version(APPLICATION)


def append(
    location: Location, table: str, mark: BatchMark, files: Sequence[AddAction] = ()
) -> None:
    """Let a table have the files of a batch, in one commit; with none, it has the mark alone.

    A batch that the table has already is repeated after a kill, and not taken twice; its files are
    nobody's. A commit that is refused because it was done before, its answer lost, is done. Raises
    `Overtaken` when the table is past the batch's begin: another run has gone on.
    """
    held = stored(location, table)
    last = held.transaction_version(APPLICATION)
    if last == mark.version:
        return
    if last is not None and last > mark.before:
        raise overtaken(table)
    try:
        transaction = deltalake.Transaction(APPLICATION, mark.version)
        commit(location, table, held, files, [transaction])
    except CommitFailedError as error:
        newest = last_version(location, table)
        if newest == last:
            raise
        if newest != mark.version:
            raise overtaken(table) from error


def commit(
    location: Location,
    table: str,
    held: deltalake.DeltaTable,
    actions: Iterable[Any],
    transactions: Sequence[deltalake.Transaction] = (),
) -> None:
    """Take files out of a table and others in, in one commit; what came since `held` stays.

    `actions` are those of delta-rs. Raises `CommitFailedError`, as `answered` does.
    """
    with answered(location, table, held) as identity:
        held.create_write_transaction(
            list(actions),
            mode="append",
            schema=held.schema(),
            commit_properties=deltalake.CommitProperties(
                identity, app_transactions=list(transactions)
            ),
        )


def is_decoded(location: Location) -> bool:
    """Return whether silver has all of bronze: the last table has a transaction of each batch."""
    return last_version(location, tables.BRONZE) == last_version(location, LAST)


@contextmanager
def answered(
    location: Location, table: str, held: deltalake.DeltaTable
) -> Iterator[dict[str, str]]:
    """Lend what the one commit of the block on `held` has to carry as its metadata.

    When it is refused because it was done before, its answer lost, it is done; else
    `CommitFailedError` goes on.
    """
    after, commit = held.version(), {_COMMIT: uuid.uuid4().hex}
    try:
        yield commit
    except CommitFailedError:
        if not _has(stored(location, table), after, commit):
            raise


def _has(table: deltalake.DeltaTable, after: int, commit: Mapping[str, str]) -> bool:
    """Return whether a table has a commit, by its id, among those that came after a version."""
    later = table.version() - after
    return later > 0 and any(commit.items() <= one.items() for one in table.history(later))


def overtaken(table: str) -> Overtaken:
    """Return the error for a table that another run has gone on with."""
    return Overtaken(
        f"another run of the archive has gone on with {table}; wait for it, or end one of the two"
    )


_FEW_FILES = 100

_OLDEST_READERS = 1
"""Of tables that any reader understands: their rows are those of their files, under their names."""


def load(
    spark: SparkSession, location: Location, table: str, held: deltalake.DeltaTable | None = None
) -> DataFrame:
    """Return a table with its columns in order, at the version of `held`, else the newest one.

    Raises `SchemaChanged`, and as `stored` does.
    """
    frame = frame_of(spark, location, table, held or stored(location, table))
    return columns.require(frame, {**ARCHIVE, **MEASURES}[table], table)


def frame_of(
    spark: SparkSession, location: Location, table: str, held: deltalake.DeltaTable
) -> DataFrame:
    """Return the rows of a table at the version of `held`.

    Where its files are few, Spark is told their names: Delta finds them by queries of Spark, which
    take a second for each version of a table.
    """
    folder = location.spark_path(table)
    schema = StructType.fromJson(json.loads(held.schema().to_json()))
    paths = pa.table(held.get_add_actions()).column("path").to_pylist()
    if len(paths) > _FEW_FILES or held.protocol().min_reader_version > _OLDEST_READERS:
        return spark.read.format("delta").option("versionAsOf", held.version()).load(folder)
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).options(basePath=folder, __globPaths__="false")
    return reader.parquet(*(f"{folder}/{path}" for path in paths))


def _nullable(schema: StructType) -> str:
    """Return the schema as Spark's appends have it: Delta makes every column nullable."""
    text = schema.json().replace('"nullable":false', '"nullable":true')
    return text.replace('"containsNull":false', '"containsNull":true')
