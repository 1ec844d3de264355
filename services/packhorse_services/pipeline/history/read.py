"""The archive as history: which packages there are between two offsets, and who removed them."""

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
from pyspark.errors import AnalysisException
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
from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.errors import TablesUnusable
from packhorse_services.pipeline.location import Location

REMOVED = [Status.REMOVED.value, Status.REMOVED_FAILED.value, Status.SKIPPED.value]
"""What a subscriber says of a package that it did not import."""

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
    spark: SparkSession, location: Location, table: str, schema: t.StructType
) -> DataFrame:
    """Return a table of the archive. Raises `TablesUnusable` when it isn't there yet."""
    try:
        frame = spark.read.format("delta").load(location.spark_path(table))
        return schemas.require(frame, schema, table)
    except AnalysisException as error:
        raise TablesUnusable(
            f"there is no table {table} at {location.base}; run packhorse-pipeline archive first"
        ) from error


def package_records(spark: SparkSession, location: Location, journal_id: str) -> DataFrame:
    """Return the bronze rows of one package topic, with what their headers say of them.

    That is `publisher_agent` and `package_id`, null where the header is missing.
    """
    bronze = archived(spark, location, tables.BRONZE, schemas.BRONZE)
    return with_headers(bronze.where(f.col("journal_id") == journal_id))


def with_headers(bronze: DataFrame) -> DataFrame:
    """Return the records of package topics with `publisher_agent` and `package_id`."""
    return bronze.where(f.col("topic").endswith("_package")).withColumns(
        {
            "publisher_agent": header(AGENT_HEADER).cast("string"),
            "package_id": header(PACKAGE_ID_HEADER).cast("string"),
        }
    )


def gaps(spark: SparkSession, location: Location, journal_id: str) -> DataFrame:
    """Return first_missing and next_offset of what the archive lacks of a package topic."""
    found = archived(spark, location, tables.GAPS, schemas.GAPS).where(
        f.col("topic").endswith("_package") & (f.col("journal_id") == journal_id)
    )
    return found.select("first_missing", "next_offset").distinct()


def packages_up_to(
    spark: SparkSession,
    location: Location,
    *,
    agents: Collection[str],
    after: int,
    up_to: int,
    journal_id: str,
    applied: Iterable[AppliedSequence] = (),
) -> DataFrame:
    """Return the packages of `agents` with an offset above `after` and up to `up_to`.

    The columns are those of `schemas.BRONZE`. A package that repeats a producer's number is none
    (R27); `applied` are the highest numbers up to `after`.
    """
    records = _between(package_records(spark, location, journal_id), agents, after, up_to)
    return without_repeats(records, applied).select(*schemas.BRONZE.fieldNames())


def numbers_up_to(
    spark: SparkSession,
    location: Location,
    *,
    agents: Collection[str],
    after: int,
    up_to: int,
    journal_id: str,
) -> DataFrame:
    """Return each producer's highest number in that range, and where it is: `NUMBERS`."""
    records = _between(package_records(spark, location, journal_id), agents, after, up_to)
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
    """Return the statuses (`schemas.STATUSES`) that a subscriber told of packages of `agents`.

    With `journal_id`, only what was said of that journal.
    """
    said = archived(spark, location, tables.STATUSES, schemas.STATUSES).where(
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
    """Return the records whose number is above all that their producer gave before (R27).

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
    repeats = known.withColumn("highest", f.max(number).over(before)).where(
        number <= f.col("highest")
    )
    return without(records, repeats)


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
    names = NUMBERS.fieldNames()
    for batch in batches:
        rows = []
        offsets, headers = batch.columns
        for offset, listed in zip(offsets.to_pylist(), headers.to_pylist(), strict=True):
            try:
                entry = decode_entry({one["key"]: one["value"] or b"" for one in listed})
            except Undecodable:
                continue  # whoever decodes the package tells of it
            if entry.producer and is_producer(entry.producer):
                number = (entry.producer, entry.epoch, entry.sequence)
                rows.append(dict(zip(names, (offset, entry.publisher_agent, *number), strict=True)))
        yield pa.RecordBatch.from_pylist(rows, schema=_NUMBERS)


_NUMBERS = pa.schema(
    [
        ("offset", pa.int64()),
        ("publisher_agent", pa.string()),
        ("producer", pa.string()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
    ]
)
