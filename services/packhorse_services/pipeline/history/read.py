"""The archive as history: which packages there are between two offsets, and who removed them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.snapshots.snapshot import AppliedSequence
from packhorse.wire.messages import Status
from packhorse.wire.package_codec import (
    AGENT_HEADER,
    PACKAGE_ID_HEADER,
)
from packhorse_services.pipeline.history.numbers import numbers_of
from packhorse_services.pipeline.history.packages import (
    BronzeVersion,
    Packages,
    package_files,
)
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import load, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION, literal, one_of, rows

REMOVED = [one.value for one in Status if one is not Status.IMPORTED]
"""What a subscriber says of a package that it did not import; not LEFT_OUT: it was not for it."""


def bronze_version(location: Location, package_topic: str) -> BronzeVersion:
    """Return bronze's newest version; its files stay for days when others replace them.

    Raises `TablesUnusable` when it isn't there yet.
    """
    return BronzeVersion(stored(location, tables.BRONZE).version(), package_topic)


def package_records(
    spark: SparkSession, location: Location, journal_id: str, version: BronzeVersion
) -> DataFrame:
    """Return the bronze rows of a journal's packages, with what their headers say of them.

    Added are `publisher_agent` and `package_id`, null where the header is missing. What can be
    asked of all packages `headers.py` answers.
    """
    held = stored(location, tables.BRONZE, version.number)
    own = (f.col("journal_id") == journal_id) & (f.col("topic") == version.package_topic)
    return (
        load(spark, location, tables.BRONZE, held)
        .where(own)
        .withColumns(
            {
                "publisher_agent": header(AGENT_HEADER).cast("string"),
                "package_id": header(PACKAGE_ID_HEADER).cast("string"),
            }
        )
    )


def gaps(location: Location, journal_id: str) -> list[tuple[int, int]]:
    """Return what the archive lacks of a package topic: first offsets missing, and those behind.

    There are few: what was gone before a partition was first read, and what an operator has
    accepted. Raises `TablesUnusable`.
    """
    wanted = f"journal_id = {literal(journal_id)}"  # which no other topic has
    sql = f"SELECT DISTINCT first_missing, next_offset FROM {RELATION} WHERE {wanted}"  # noqa: S608 - literals
    found = asked(location, tables.GAPS, sql)
    return sorted((one["first_missing"], one["next_offset"]) for one in found)


def asked(location: Location, table: str, sql: str) -> list[dict[str, Any]]:
    """Return what a query on `RELATION` gives, a table of the archive. Raises `TablesUnusable`."""
    return list(rows(stored(location, table), sql))


@dataclass(frozen=True, slots=True)
class PackageSelection:
    """The packages of agents, of each above an offset and up to another (`spans`).

    They are those of a version of bronze, whatever is rewritten or expires meanwhile. Numbers of
    an agent count from `numbered_after` on where its span begins later; `applied` are the highest
    ones before. Those of `absent` do not count.
    """

    journal_id: str
    version: BronzeVersion
    spans: Mapping[str, tuple[int, int]]
    numbered_after: Mapping[str, int]
    applied: Iterable[AppliedSequence] = ()
    absent: Iterable[int] = ()
    subscriber: str = ""
    """Whose packages they are; empty: everybody's, and none that is for named subscribers."""


def counted(location: Location, wanted: PackageSelection) -> Packages:
    """Return the packages that count: one that repeats a producer's number does not (R27)."""
    known = {
        agent: (min(after, wanted.numbered_after.get(agent, after)), up_to)
        for agent, (after, up_to) in wanted.spans.items()
    }
    numbers = numbers_of(location, wanted.version, wanted.journal_id, known, wanted.applied)
    absent, files = numbers.repeats.union(wanted.absent), package_files(location, wanted.version)
    spans, whose = wanted.spans, wanted.subscriber
    return Packages(location, wanted.journal_id, spans, absent, files, whose)


def said_by(
    spark: SparkSession,
    location: Location,
    subscriber: str,
    agents: Collection[str],
    journal_id: str,
) -> DataFrame:
    """Return the statuses (`schemas.STATUSES`) that a subscriber reported for packages of `agents`.

    Only what was said of that journal.
    """
    return load(spark, location, tables.STATUSES).where(
        (f.col("subscriber") == subscriber)
        & f.col("publisher_agent").isin(list(agents))
        & (f.col("package_journal_id") == journal_id)
    )


def removed_by(
    location: Location, subscriber: str, agents: Collection[str], journal_id: str
) -> list[tuple[str, int]]:
    """Return publisher agent and offset of the packages that `subscriber` did not import, in order.

    Its last word on a package counts, and only what was said of that journal. Raises
    `TablesUnusable`.
    """
    said = (
        f"subscriber = {literal(subscriber)} AND {one_of('publisher_agent', agents)} "
        f"AND package_journal_id = {literal(journal_id)}"
    )
    suspects = f"SELECT package_offset FROM {RELATION} WHERE {said} AND {one_of('status', REMOVED)}"  # noqa: S608 - literals
    last = 'last_value(status ORDER BY "time", "offset")'
    sql = (
        f"SELECT publisher_agent, package_offset FROM {RELATION} "  # noqa: S608 - literals
        f"WHERE {said} AND package_offset IN ({suspects}) "
        f"GROUP BY publisher_agent, package_offset HAVING {one_of(last, REMOVED)}"
    )
    found = asked(location, tables.STATUSES, sql) if agents else []
    return sorted((one["publisher_agent"], one["package_offset"]) for one in found)


def header(name: str) -> Column:
    """Return the bytes of a record's header, or null."""
    named = f.filter("headers", lambda one: one["key"] == name)
    return f.try_element_at(named, f.lit(-1))["value"]
