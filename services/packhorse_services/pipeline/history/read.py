"""The archive as history: which packages there are between two offsets, and who removed them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from packhorse.snapshots.snapshot import AppliedSequence
from packhorse.wire.messages import Status
from packhorse.wire.package_codec import (
    AGENT_HEADER,
    PACKAGE_ID_HEADER,
    decode_entry,
    is_producer,
)
from packhorse.wire.record import Undecodable
from packhorse_services.pipeline.archive.reading import headers_of
from packhorse_services.pipeline.errors import TablesUnusable
from packhorse_services.pipeline.history.packages import Packages, package_files
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import load, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION, literal, rows

REMOVED = [one.value for one in Status if one is not Status.IMPORTED]
"""What a subscriber says of a package that it did not import; not LEFT_OUT: it was not for it."""

NUMBERS = t.StructType(
    [
        t.StructField("offset", t.LongType(), False),
        t.StructField("publisher_agent", t.StringType(), False),
        t.StructField("producer", t.StringType(), False),
        t.StructField("epoch", t.LongType(), False),
        t.StructField("sequence", t.LongType(), False),
    ]
)
"""How producers have numbered packages (R27)."""


def archived(
    spark: SparkSession, location: Location, table: str, version: int | None = None
) -> DataFrame:
    """Return a table of the archive, as it is now or was at a version.

    Raises `TablesUnusable` when it isn't there yet.
    """
    try:
        return load(spark, location, table, stored(location, table, version))
    except TableNotFoundError as error:
        raise _no_table(location, table) from error


def bronze_version(location: Location) -> int:
    """Return bronze's newest version; its files stay for days when others replace them.

    Raises `TablesUnusable` when it isn't there yet.
    """
    try:
        return int(stored(location, tables.BRONZE).version())
    except TableNotFoundError as error:
        raise _no_table(location, tables.BRONZE) from error


def _no_table(location: Location, table: str) -> TablesUnusable:
    return TablesUnusable(
        f"there is no table {table} at {location.base}; run packhorse-pipeline archive first"
    )


def package_records(
    spark: SparkSession, location: Location, journal_id: str, version: int | None = None
) -> DataFrame:
    """Return the bronze rows of one package topic, with what their headers say of them.

    `version` is bronze's, without it the newest. Added are `publisher_agent` and `package_id`, null
    where the header is missing. What can be asked of all packages `headers.py` answers.
    """
    bronze = archived(spark, location, tables.BRONZE, version)
    own = (f.col("journal_id") == journal_id) & f.col("topic").endswith("_package")
    return bronze.where(own).withColumns(
        {
            "publisher_agent": header(AGENT_HEADER).cast("string"),
            "package_id": header(PACKAGE_ID_HEADER).cast("string"),
        }
    )


def gaps(location: Location, journal_id: str) -> list[tuple[int, int]]:
    """Return what the archive lacks of a package topic: first offsets missing, and those behind.

    There are few: each was accepted by an operator. Raises `TablesUnusable`.
    """
    wanted = f"ends_with(topic, '_package') AND journal_id = {literal(journal_id)}"
    sql = f"SELECT DISTINCT first_missing, next_offset FROM {RELATION} WHERE {wanted}"  # noqa: S608 - literals
    try:
        found = list(rows(stored(location, tables.GAPS), sql))
    except TableNotFoundError as error:
        raise _no_table(location, tables.GAPS) from error
    return sorted((one["first_missing"], one["next_offset"]) for one in found)


@dataclass(frozen=True, slots=True)
class PackageSelection:
    """The packages of agents, of each above an offset and up to another (`spans`).

    They are those of a version of bronze, whatever is rewritten or expires meanwhile. Numbers of
    an agent count from `numbered_after` on where its span begins later; `applied` are the highest
    ones before. Those of `absent` do not count.
    """

    journal_id: str
    version: int
    spans: Mapping[str, tuple[int, int]]
    numbered_after: Mapping[str, int]
    applied: Iterable[AppliedSequence] = ()
    absent: Iterable[int] = ()
    subscriber: str = ""
    """Whose packages they are; empty: everybody's, and none that is for named subscribers."""


def counted(spark: SparkSession, location: Location, wanted: PackageSelection) -> Packages:
    """Return the packages that count: one that repeats a producer's number does not (R27)."""
    numbered = wanted.numbered_after
    inside = [
        (f.col("publisher_agent") == agent)
        & f.col("offset").between(min(after, numbered.get(agent, after)) + 1, up_to)
        for agent, (after, up_to) in wanted.spans.items()
    ]
    records = package_records(spark, location, wanted.journal_id, wanted.version)
    own = records.where(reduce(Column.__or__, inside, f.lit(False)))
    gone = {int(row["offset"]) for row in repeats(own, wanted.applied).collect()}  # little
    files = package_files(location, wanted.version)
    absent = frozenset(gone.union(wanted.absent))
    whose = wanted.subscriber
    return Packages(location, wanted.journal_id, wanted.spans, absent, files, whose)


def numbers_up_to(
    archive: DataFrame, *, agents: Collection[str], after: int, up_to: int
) -> DataFrame:
    """Return each producer's highest number in that range of `package_records`: `NUMBERS`."""
    records = _between(archive, agents, after, up_to)
    highest = f.max(f.struct("epoch", "sequence", -f.col("offset")))
    found = numbers(records).groupBy("publisher_agent", "producer").agg(highest.alias("highest"))
    return found.select(
        (-f.col("highest")["col3"]).alias("offset"),
        "publisher_agent",
        "producer",
        "highest.epoch",
        "highest.sequence",
    )


def said_by(
    spark: SparkSession,
    location: Location,
    subscriber: str,
    agents: Collection[str],
    journal_id: str = "",
) -> DataFrame:
    """Return the statuses (`schemas.STATUSES`) that a subscriber reported for packages of `agents`.

    With `journal_id`, only what was said of that journal.
    """
    said = archived(spark, location, tables.STATUSES).where(
        (f.col("subscriber") == subscriber) & f.col("publisher_agent").isin(list(agents))
    )
    if journal_id:
        said = said.where(f.col("package_journal_id").isin(journal_id, ""))
    return said


def removed_by(
    spark: SparkSession,
    location: Location,
    subscriber: str,
    agents: Collection[str],
    journal_id: str = "",
) -> DataFrame:
    """Return publisher_agent and offset of the packages that `subscriber` did not import.

    Its last word on a package counts. With `journal_id`, only what was said of that journal.
    """
    said = said_by(spark, location, subscriber, agents, journal_id)
    last = f.max_by("status", f.struct("time", "offset")).alias("status")
    return (
        said.groupBy("publisher_agent", f.col("package_offset"))
        .agg(last)
        .where(f.col("status").isin(REMOVED))
        .select("publisher_agent", f.col("package_offset").alias("offset"))
    )


def without(packages: DataFrame, offsets: DataFrame) -> DataFrame:
    """Return the packages that are at none of `offsets`, which are few."""
    return packages.join(f.broadcast(offsets.select("offset")), "offset", "left_anti")


def without_repeats(records: DataFrame, applied: Iterable[AppliedSequence] = ()) -> DataFrame:
    """Return the records that are no `repeats`."""
    return without(records, repeats(records, applied))


def repeats(records: DataFrame, applied: Iterable[AppliedSequence] = ()) -> DataFrame:
    """Return the offsets whose number is not above all that their producer gave before (R27).

    A package without a producer is always new. The bodies stay where they are: what repeats is
    found from the headers, and is little.
    """
    spark = records.sparkSession
    rows = [
        (one.log_offset, one.publisher_agent, one.producer, one.epoch, one.sequence)
        for one in applied
    ]
    known = numbers(records).unionByName(spark.createDataFrame(rows, NUMBERS))
    before = (
        Window.partitionBy("publisher_agent", "producer")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    number = f.struct("epoch", "sequence")
    return (
        known.withColumn("highest", f.max(number).over(before))
        .where(number <= f.col("highest"))
        .select("offset")
    )


def numbers(records: DataFrame) -> DataFrame:
    """Return the numbers of packages that have one: `NUMBERS`."""
    return records.select("offset", "headers").mapInArrow(_numbers, NUMBERS)


def header(name: str) -> Column:
    """Return the bytes of a record's header, or null."""
    named = f.filter("headers", lambda one: one["key"] == name)
    return f.try_element_at(named, f.lit(-1))["value"]


def _between(records: DataFrame, agents: Collection[str], after: int, up_to: int) -> DataFrame:
    return records.where(
        f.col("publisher_agent").isin(list(agents))
        & (f.col("offset") > after)
        & (f.col("offset") <= up_to)
    )


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        offsets, headers = batch.columns
        given = zip(offsets.to_pylist(), headers_of(headers), strict=True)
        rows = [row for offset, named in given if (row := _number(offset, named))]
        if rows:
            columns = zip(zip(*rows, strict=True), _NUMBERS, strict=True)
            arrays = [pa.array(column, one.type) for column, one in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=_NUMBERS)


def _number(offset: int, headers: Mapping[str, bytes]) -> tuple[int, str, str, int, int] | None:
    try:
        entry = decode_entry(headers)
    except Undecodable:
        return None  # whoever decodes the package reports it
    if not (entry.producer and is_producer(entry.producer)):
        return None
    return offset, entry.publisher_agent, entry.producer, entry.epoch, entry.sequence


_NUMBERS = pa.schema(
    [
        ("offset", pa.int64()),
        ("publisher_agent", pa.string()),
        ("producer", pa.string()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
    ]
)
