"""How much of the history somebody still needs, whatever its age."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.snapshots.snapshot import Snapshot

_COVERED = "publisher_agent string, journal_id string, covered long"


@dataclass(frozen=True, slots=True)
class Needed:
    """The first day whose packages are needed, and the first of them."""

    day: date
    publisher_agent: str
    offset: int


def covered(spark: SparkSession, snapshots: Iterable[Snapshot]) -> DataFrame:
    """Return up to which offset snapshots for everybody hold the content, by agent and journal."""
    newest: dict[tuple[str, str], int] = {}
    for snapshot in snapshots:
        if not snapshot.subscriber:
            for agent in snapshot.publisher_agents:
                key = (agent, snapshot.journal_id)
                newest[key] = max(newest.get(key, -1), snapshot.offset)
    rows = [(agent, journal, offset) for (agent, journal), offset in newest.items()]
    return spark.createDataFrame(rows, _COVERED)


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
