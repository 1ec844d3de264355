"""The archive's tables as Delta keeps them: made, checked, and fenced by transaction versions.

A query writes each batch under one application id and a growing version, so that Delta takes it
once. The version's upper half is the generation of the query's checkpoint: beginning one anew
raises it, and whoever still works on the old one is refused.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from packhorse_services.pipeline.errors import Overtaken, TablesUnusable
from packhorse_services.pipeline.storage import columns, schemas, tables
from packhorse_services.pipeline.storage.location import Location

SILVER: Mapping[str, StructType] = {
    tables.QUARANTINE: schemas.QUARANTINE,
    tables.PACKAGES: schemas.PACKAGES,
    tables.STATUSES: schemas.STATUSES,
    tables.COMMAND_STATUSES: schemas.COMMAND_STATUSES,
    tables.ANNOUNCEMENTS: schemas.ANNOUNCEMENTS,
    tables.COMMANDS: schemas.COMMANDS,
    tables.EVENTS: schemas.EVENTS,
}
"""What the second query writes, in the order in which it does."""

ARCHIVE: Mapping[str, StructType] = {
    tables.BRONZE: schemas.BRONZE,
    tables.GAPS: schemas.GAPS,
    **SILVER,
}

_GENERATION = 2**32
_COMMIT = "packhorse-commit"
"""Where the log of a table has the id that its writer gave a commit."""

_FEED = "delta.enableChangeDataFeed"
"""Of silver: the measures ask which rows are new. It costs nothing where rows are only added."""


@dataclass(frozen=True, slots=True)
class BatchNumber:
    """A batch's place in the order of all batches of a query, over all its checkpoints."""

    query: str
    generation: int
    batch: int = -1
    """-1: before the generation's first batch."""

    @property
    def version(self) -> int:
        """The version of the transaction."""
        return self.generation * _GENERATION + self.batch + 1

    @classmethod
    def of(cls, query: str, version: int) -> "BatchNumber":
        """Return the turn that a version stands for."""
        generation, batch = divmod(version, _GENERATION)
        return cls(query, generation, batch - 1)


def application(query: str) -> str:
    """Return the id under which a query writes."""
    return f"packhorse-archive-{query}"


def partitions(schema: StructType) -> list[str]:
    """Return the columns by which a table with these columns is partitioned."""
    return [name for name in ("topic", "day") if {name, "day"} <= set(schema.fieldNames())]


def prepare(location: Location, wanted: Mapping[str, StructType] = ARCHIVE) -> None:
    """Make the tables that are not there. Raises `TablesUnusable`, `SchemaChanged`."""
    for name, schema in wanted.items():
        try:
            _prepare(location, name, schema)
        except (DeltaError, OSError) as error:
            raise TablesUnusable(
                f"{location.delta_uri(name)} can't hold a table: {str(error)[:300]}; check "
                "PACKHORSE_TABLES_URL, and the credentials when it is on S3"
            ) from error


def _prepare(location: Location, name: str, schema: StructType) -> None:
    uri, options = location.delta_uri(name), location.delta_options()
    if deltalake.DeltaTable.is_deltatable(uri, options):
        found = deltalake.DeltaTable(uri, storage_options=options).schema().to_json()
        columns.compare(StructType.fromJson(json.loads(found)), schema, name)
        return
    deltalake.DeltaTable.create(
        uri,
        schema=deltalake.Schema.from_json(_nullable(schema)),
        partition_by=partitions(schema) or None,
        mode="ignore",
        description=tables.MEANINGS.get(name),
        configuration={_FEED: str(name in SILVER).lower()},
        storage_options=options,
    )


def stored(location: Location, table: str) -> deltalake.DeltaTable:
    """Return a table as it is now, without Spark."""
    return deltalake.DeltaTable(location.delta_uri(table), storage_options=location.delta_options())


def last_turn(location: Location, table: str, query: str) -> BatchNumber | None:
    """Return the last turn that a table has taken of a query."""
    version = stored(location, table).transaction_version(application(query))
    return None if version is None else BatchNumber.of(query, version)


def newest_turn(location: Location, names: Iterable[str], query: str) -> BatchNumber | None:
    """Return the last turn that any of the tables has taken of a query."""
    turns = [turn for name in names if (turn := last_turn(location, name, query))]
    return max(turns, key=lambda turn: turn.version, default=None)


def append(
    location: Location,
    table: str,
    turn: BatchNumber,
    files: Sequence[AddAction] = (),
    *,
    taken: BatchNumber | None = None,
) -> None:
    """Let a table take a turn with its files, in one commit; with none, it takes the turn alone.

    A turn that the tables had `taken` when the run was planned is repeated after a kill, and not
    taken twice; its files are nobody's. A commit that is refused because it was done before, its
    answer lost, is done. Raises `Overtaken` for any other turn that is taken: by another run.
    """
    held = stored(location, table)
    last = held.transaction_version(application(turn.query))
    if last is not None and last >= turn.version:
        repeated = last == turn.version and taken is not None and turn.version <= taken.version
        if not repeated:
            raise _overtaken(turn, BatchNumber.of(turn.query, last))
        return
    try:
        _commit(location, table, held, turn, files)
    except CommitFailedError as error:
        newest = last_turn(location, table, turn.query)
        if newest is None or newest.version < turn.version:
            raise
        raise _overtaken(turn, newest) from error


def _commit(
    location: Location,
    table: str,
    held: deltalake.DeltaTable,
    turn: BatchNumber,
    files: Sequence[AddAction],
) -> None:
    """Commit the files and the turn; by the turn a later look knows how far the query is."""
    mark = deltalake.Transaction(application(turn.query), turn.version)
    with answered(location, table, held) as commit:
        held.create_write_transaction(
            list(files),
            mode="append",
            schema=held.schema(),
            commit_properties=deltalake.CommitProperties(commit, app_transactions=[mark]),
        )


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


def _overtaken(turn: BatchNumber, last: BatchNumber) -> Overtaken:
    does = "has begun a new checkpoint of" if last.generation > turn.generation else "works on"
    return Overtaken(f"another run {does} the query {turn.query}; end one of the two")


def overtaken(location: Location, names: Iterable[str], turn: BatchNumber) -> Overtaken | None:
    """Return the error for who works on a checkpoint since which another run has begun one."""
    newest = newest_turn(location, names, turn.query)
    if newest is None or newest.generation <= turn.generation:
        return None
    return _overtaken(turn, newest)


def begin(location: Location, names: Iterable[str], turn: BatchNumber) -> None:
    """Let the tables take a turn without rows; earlier ones can write no more.

    Raises `Overtaken` when one of them has taken it already: another run begins it, too.
    """
    for name in names:
        append(location, name, turn)


def load(spark: SparkSession, location: Location, table: str) -> DataFrame:
    """Return a table of the archive with its columns in order. Raises `SchemaChanged`."""
    frame = spark.read.format("delta").load(location.spark_path(table))
    return columns.require(frame, ARCHIVE[table], table)


def _nullable(schema: StructType) -> str:
    """Return the schema as Spark's appends have it: Delta makes every column nullable."""
    text = schema.json().replace('"nullable":false', '"nullable":true')
    return text.replace('"containsNull":false', '"containsNull":true')
