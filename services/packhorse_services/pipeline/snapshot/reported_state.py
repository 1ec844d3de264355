"""What the archive has heard of a subscriber, for it and its followers to judge a snapshot by."""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.snapshots.snapshot import ContentSnapshot, ReportedState
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.numbers import numbers_of
from packhorse_services.pipeline.history.read import (
    REMOVED,
    asked,
    package_records,
    said_by,
)
from packhorse_services.pipeline.history.target import HistoryTarget
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import load
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION, literal

_REPORTED = 20


def require_heard_of(
    location: Location, subscriber: str, snapshots: Iterable[ContentSnapshot]
) -> None:
    """Raise `TaskRefused` for a name that is no subscriber's in the archive.

    A snapshot that was made for it before is proof enough: what it reported may have expired.
    """
    if not subscriber or any(one.subscriber == subscriber for one in snapshots):
        return
    if _named(location, f"WHERE subscriber = {literal(subscriber)} LIMIT 1"):
        return
    heard_of = _named(location, f"ORDER BY subscriber LIMIT {_REPORTED + 1}")
    known = heard_of[:_REPORTED] + ["…"] * (len(heard_of) > _REPORTED)
    raise TaskRefused(
        f"the archive has never heard of a subscriber {subscriber!r}, it knows "
        f"{', '.join(known) or 'none yet'}; correct the name, or leave --subscriber out: a new "
        "one takes the snapshot for everybody (if it has begun, packhorse-pipeline archive first)"
    )


def _named(location: Location, which: str) -> list[str]:
    """Return the subscribers whose statuses or announcements are archived, in order."""
    sql = f"SELECT DISTINCT subscriber FROM {RELATION} {which}"  # noqa: S608 - literals
    both = tables.STATUSES, tables.ANNOUNCEMENTS
    return sorted({row["subscriber"] for one in both for row in asked(location, one, sql)})


def heard(
    spark: SparkSession, location: Location, target: HistoryTarget, subscriber: str
) -> tuple[ReportedState, ...]:
    """Return what `subscriber` reported of each agent's packages up to the target; "": nothing.

    A status that is on its way to the archive is not known of; so the first package without one
    is where the knowledge ends. Repeats (R27) and what lies before the subscription's beginning get
    none.
    """
    if not subscriber:
        return ()
    said = said_by(spark, location, subscriber, target.agents, target.journal_id)
    removed = said.where(f.col("status").isin(REMOVED)).groupBy("publisher_agent")
    removed_ms = {
        row.publisher_agent: int(row.decided_ms)
        for row in removed.agg(f.max("decided_ms").alias("decided_ms")).collect()
    }
    open_from = _first_undecided(spark, location, target, subscriber, said)
    return tuple(
        ReportedState(agent, open_from.get(agent, target.offset + 1) - 1, removed_ms.get(agent, 0))
        for agent in target.agents
    )


def _first_undecided(
    spark: SparkSession, location: Location, target: HistoryTarget, subscriber: str, said: DataFrame
) -> dict[str, int]:
    """Return the offset of the first package without a status, of the agents that have one."""
    archive = package_records(spark, location, target.journal_id, target.version)
    spans = dict.fromkeys(target.agents, (-1, target.offset))
    repeats = numbers_of(location, target.version, target.journal_id, spans).repeats  # few
    records = archive.where(
        f.col("publisher_agent").isin(list(target.agents))
        & (f.col("offset") <= target.offset)
        & ~f.col("offset").isin(list(repeats))
    )
    first = f.min("offset").alias("offset")
    packages = records.groupBy("publisher_agent", "package_id").agg(first)
    decided = said.select("publisher_agent", f.col("package_offset").alias("offset")).distinct()
    undecided = packages.join(decided, ["publisher_agent", "offset"], "left_anti")
    begun = _begun(spark, location, target, subscriber)
    later = undecided.join(f.broadcast(begun), "publisher_agent", "left").where(
        f.col("offset") > f.coalesce("started_offset", f.lit(-1))
    )
    rows = later.groupBy("publisher_agent").agg(first).collect()  # one for each agent
    return {row.publisher_agent: int(row.offset) for row in rows}


def _begun(
    spark: SparkSession, location: Location, target: HistoryTarget, subscriber: str
) -> DataFrame:
    """Return publisher_agent and started_offset of each subscription, as announced last."""
    reported = load(spark, location, tables.ANNOUNCEMENTS)
    subscriptions = reported.where(f.col("subscriber") == subscriber).select(
        "time", "offset", f.explode("subscriptions").alias("subscription")
    )
    own = subscriptions.where(f.col("subscription.journal_id") == target.journal_id)
    last = f.max_by("subscription.started_offset", f.struct("time", "offset")).alias(
        "started_offset"
    )
    return own.groupBy(f.col("subscription.publisher_agent").alias("publisher_agent")).agg(last)
