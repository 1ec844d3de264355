"""How much of the history somebody still needs, whatever its age."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from packhorse.snapshots.snapshot import Snapshot
from packhorse.wire.messages import Status
from packhorse_services.pipeline.history.bases import began, known_agents, serves

Agents = frozenset[str]

_COVERED = "publisher_agent string, journal_id string, covered long"


@dataclass(frozen=True, slots=True)
class Needed:
    """The first day whose packages are needed, and the first of them."""

    day: date
    publisher_agent: str
    offset: int


def covered(
    packages: DataFrame, snapshots: Iterable[Snapshot], sets: Iterable[Agents]
) -> DataFrame:
    """Return up to which offset snapshots hold the content, by agent and journal.

    Of all agents together, and of those of each of `sets`: who follows these alone is served by no
    snapshot of others too. Only what a fold may go on from counts: whole ones, for everybody.
    """
    first: dict[str, dict[str, int]] = {}
    found = packages.groupBy("journal_id", "publisher_agent").agg(f.min("offset").alias("offset"))
    for row in found.collect():  # one for each agent
        first.setdefault(row.journal_id, {})[row.publisher_agent] = row.offset
    there = list(snapshots)
    rows = [
        (agent, journal, offset)
        for journal, agents in first.items()
        for agent, offset in held(journal, agents, there, sets).items()
    ]
    return packages.sparkSession.createDataFrame(rows, _COVERED)


def held(
    journal_id: str, first: Mapping[str, int], snapshots: Sequence[Snapshot], sets: Iterable[Agents]
) -> dict[str, int]:
    """Return up to which offset of a journal the packages of each agent are in snapshots.

    `first` has each agent's first archived package.
    """
    here = [one for one in snapshots if one.journal_id == journal_id]
    begun = began(first, here, journal_id)
    everybody = frozenset(known_agents(first, here, journal_id))
    usable = [one for one in here if not (one.subscriber or one.left_out)]
    found: dict[str, int] = {}
    for agents in {everybody, *(each & everybody for each in sets)}:
        offset = max((one.offset for one in usable if serves(one, agents, begun)), default=-1)
        for agent in agents:
            found[agent] = min(found.get(agent, offset), offset)
    return found


def followed(announcements: DataFrame) -> set[Agents]:
    """Return the sets of publisher agents that subscribers follow, as they told."""
    lanes = f.transform("lanes", lambda lane: lane["publisher_agent"])
    rows = announcements.select(f.array_sort(lanes).alias("agents")).distinct().collect()
    return {frozenset(row.agents) for row in rows if row.agents}


def first_needed(packages: DataFrame, covered: DataFrame) -> DataFrame:
    """Return day, publisher_agent, offset of the first package that no snapshot holds, if any.

    `packages` has the columns of `schemas.PACKAGES`, `covered` those of the function. Of a journal
    that another one has followed nothing is needed: no position in it is good (R24).
    """
    key = ["publisher_agent", "journal_id"]
    present = packages.agg(f.max_by("journal_id", "time").alias("journal_id"))
    above = (
        packages.select(*key, "day", "offset")
        .join(f.broadcast(present), "journal_id")
        .join(f.broadcast(covered), key, "left")
        .where("offset > coalesce(covered, -1)")
    )
    first = f.min(f.struct("day", "offset", "publisher_agent")).alias("first")
    found = above.agg(first).where("first IS NOT NULL")
    return found.select("first.day", "first.publisher_agent", "first.offset")


def needed(packages: DataFrame, covered: DataFrame) -> Needed | None:
    """Return what `first_needed` finds; None when snapshots hold all packages there are."""
    row = first_needed(packages, covered).first()
    return None if row is None else Needed(row["day"], row["publisher_agent"], row["offset"])


def expired_statuses(statuses: DataFrame, before: date) -> DataFrame:
    """Return the rows of `schemas.STATUSES` that may go: of days before `before`, and IMPORTED.

    What tells which packages are absent stays: each status of a package that its subscriber has
    ever not imported. Without them nobody knows what its content lacks (R8). They are few.
    """
    package = ["subscriber", "publisher_agent", "package_offset", "package_journal_id"]
    imported = f.col("status") == Status.IMPORTED.value
    absent = statuses.where(~imported).select(*package).distinct()
    old = statuses.where(imported & (f.col("day") < f.lit(before)))
    return old.join(absent, package, "left_anti")
