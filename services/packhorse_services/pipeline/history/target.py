"""Which point of the history is meant: an offset or a time becomes one archived package."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from packhorse.snapshots.snapshot import Snapshot
from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.bases import known_agents
from packhorse_services.pipeline.history.read import archived, gaps, with_headers
from packhorse_services.pipeline.location import Location


@dataclass(frozen=True, slots=True)
class Target:
    """The last package that counts, of the agents that count."""

    journal_id: str
    agents: tuple[str, ...]
    offset: int
    package_id: str


def target(
    spark: SparkSession,
    location: Location,
    *,
    agents: Collection[str] = (),
    offset: int | None = None,
    time: datetime | None = None,
    snapshots: Collection[Snapshot] = (),
) -> Target:
    """Return the newest archived package at or before an offset, or a time of the journal (R28).

    Without either, the newest one. Without `agents`, those of every publisher agent count, also of
    one whose packages have expired and are in some of `snapshots`. Raises `TaskRefused` when
    nothing is archived there, when the point lies behind all that is archived, or when packages
    between it and the one found are missing; `TablesUnusable` when there is no archive.
    """
    lanes = _lanes(spark, location, offset, time)
    archive = [lane for lane in lanes if lane.journal_id == _newest_journal(lanes)]
    journal_id = archive[0].journal_id
    names = (lane.publisher_agent for lane in archive)
    known = tuple(sorted(known_agents(names, snapshots, journal_id)))
    if unknown := sorted(set(agents) - set(known)):
        raise TaskRefused(
            f"the archive has no package of publisher agent {unknown[0]!r}; it has those of "
            f"{', '.join(known)}"
        )
    _require_archived(archive, offset, time)
    chosen = tuple(sorted(agents)) or known
    found = [lane.wanted for lane in archive if lane.publisher_agent in chosen and lane.wanted]
    if not found:
        raise TaskRefused(
            f"there is no archived package of {', '.join(chosen)} that early; choose a later point"
        )
    last = max(found, key=lambda package: int(package.offset))
    _require_no_gap(spark, location, archive, last.offset, offset)
    return Target(journal_id, chosen, last.offset, last.package_id or "")


def _lanes(
    spark: SparkSession, location: Location, offset: int | None, time: datetime | None
) -> list[Row]:
    """Return what is archived of each journal and publisher agent, and the last that is wanted.

    One pass over headers; what comes back is a row for each agent.
    """
    within = f.lit(True)
    if offset is not None:
        within &= f.col("offset") <= offset
    if time is not None:
        within &= f.col("time") <= f.lit(time)
    bronze = archived(spark, location, tables.BRONZE, schemas.BRONZE)
    rows = with_headers(bronze).groupBy("journal_id", "publisher_agent")
    return rows.agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.unix_millis(f.min("time")).alias("since_ms"),
        f.unix_millis(f.max("time")).alias("until_ms"),
        f.max(f.when(within, f.struct("offset", "package_id"))).alias("wanted"),
        f.min(f.when(~within, f.col("offset"))).alias("following"),
    ).collect()


def _newest_journal(lanes: Sequence[Row]) -> str:
    """Return the identity of the package topic that was archived last (R24)."""
    if not lanes:
        raise TaskRefused("no package is archived yet; run packhorse-pipeline archive")
    return str(max(lanes, key=lambda lane: lane.until_ms).journal_id)


def _require_archived(archive: Sequence[Row], offset: int | None, time: datetime | None) -> None:
    first, last = min(lane.first for lane in archive), max(lane.last for lane in archive)
    if offset is not None and not first <= offset <= last:
        raise TaskRefused(
            f"offset {offset} is not archived: the archive holds {first} to {last}; "
            "run packhorse-pipeline archive for later ones"
        )
    if time is not None:
        _require_time(archive, time, last)


def _require_time(archive: Sequence[Row], time: datetime, last: int) -> None:
    """Raise `TaskRefused` for a time before the archive begins, or after its newest package.

    What came after that one, up to `time`, nobody has archived: there may be more.
    """
    since = _moment(min(lane.since_ms for lane in archive))
    until = _moment(max(lane.until_ms for lane in archive))
    if time < since:
        raise TaskRefused(
            f"the archive begins at {_shown(since)}; choose a later time, or an offset"
        )
    if time > until:
        raise TaskRefused(
            f"the newest archived package is of {_shown(until)}, and what came after it the "
            "archive can't know; run packhorse-pipeline archive, or name that package by "
            f"--offset {last}"
        )


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _shown(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _require_no_gap(
    spark: SparkSession, location: Location, archive: Sequence[Row], found: int, offset: int | None
) -> None:
    """Raise `TaskRefused` when a gap lies between the package found and the point meant."""
    following = [lane.following for lane in archive if lane.following is not None]
    end = min(following, default=max(lane.last for lane in archive)) if offset is None else offset
    missing = gaps(spark, location, archive[0].journal_id).where(
        (f.col("first_missing") <= end) & (f.col("next_offset") > found)
    )
    for row in missing.limit(1).collect():
        raise TaskRefused(
            f"the archive lacks offsets {row.first_missing} to {row.next_offset - 1} of the "
            "package topic, which lie in between; choose a point before or behind them"
        )
