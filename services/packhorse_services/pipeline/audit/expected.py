"""What a subscriber in a situation must hold: a snapshot's content and the packages since then."""

from collections import OrderedDict
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.open import open_blobs
from packhorse_services.pipeline import tables
from packhorse_services.pipeline.audit.situation import Lane, Situation
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.beginning import Beginning, beginning
from packhorse_services.pipeline.history.content import base_nodes
from packhorse_services.pipeline.history.decoding import CLEAR
from packhorse_services.pipeline.history.events import kept, package_events
from packhorse_services.pipeline.history.fold import fold
from packhorse_services.pipeline.history.read import (
    package_records,
    packages_up_to,
    removed_by,
    without,
)
from packhorse_services.pipeline.history.target import Target
from packhorse_services.pipeline.location import Location

_KEPT = 2


@dataclass(frozen=True)
class Expected:
    """Content that must be there: columns as `fold` gives them; `clears` is what removed some."""

    content: DataFrame
    clears: DataFrame


class Expectations:
    """Makes and keeps expected contents; subscribers in the same situation share one."""

    def __init__(
        self, spark: SparkSession, location: Location, blobs_url: str, *, since_start: bool
    ) -> None:
        self._spark, self._location, self._blobs_url = spark, location, blobs_url
        self._since_start = since_start
        self._kept: OrderedDict[object, tuple[Expected, ExitStack]] = OrderedDict()
        self.folds = 0

    def of(self, subscriber: str, situation: Situation) -> Expected:
        """Return what `subscriber` must hold.

        Raises `TaskRefused` when the archive can't tell: it ends too early, begins too late, has
        a gap, or is of another journal.
        """
        removed = self._removed(subscriber, situation)
        key = (situation.journal_id, situation.lanes, tuple(removed))
        if key not in self._kept:
            self._make(key, situation, removed, self._begin(subscriber, situation, removed))
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def close(self) -> None:
        """Let go of all of them."""
        while self._kept:
            self._kept.popitem()[1][1].close()

    def _make(
        self, key: object, situation: Situation, removed: list[tuple[str, int]], begin: Beginning
    ) -> None:
        while len(self._kept) >= _KEPT:
            self._kept.popitem(last=False)[1][1].close()
        with ExitStack() as stack:
            records = self._records(situation, removed, begin)
            bodies = self._location.blobs_url(tables.BODIES)
            events = stack.enter_context(kept(package_events(records, bodies)))
            base = base_nodes(self._spark, begin.base, self._blobs_url) if begin.base else None
            content = stack.enter_context(kept(fold(events, base, begin.after)))
            self._kept[key] = (
                Expected(content, events.where(f.col("kind") == CLEAR)),
                stack.pop_all(),
            )
            self.folds += 1

    def _records(
        self, situation: Situation, removed: list[tuple[str, int]], begin: Beginning
    ) -> DataFrame:
        parts = [self._of_lane(situation, lane, begin) for lane in situation.lanes]
        records = reduce(DataFrame.unionByName, parts)
        if not removed:
            return records
        gone = self._spark.createDataFrame([(offset,) for _, offset in removed], "offset long")
        return without(records, gone)

    def _of_lane(self, situation: Situation, lane: Lane, begin: Beginning) -> DataFrame:
        return packages_up_to(
            self._spark,
            self._location,
            agents=[lane.agent],
            after=lane.started if self._since_start else begin.after,
            up_to=lane.offset,
            journal_id=situation.journal_id,
            applied=[
                one
                for one in (begin.base.sequences if begin.base else ())
                if one.publisher_agent == lane.agent
            ],
        )

    def _removed(self, subscriber: str, situation: Situation) -> list[tuple[str, int]]:
        """Return what it did not import; its own word counts more than what has arrived of it."""
        said = removed_by(
            self._spark, self._location, subscriber, situation.agents, situation.journal_id
        )
        offsets = {lane.agent: lane.offset for lane in situation.lanes}
        found = {
            (row["publisher_agent"], row["offset"])
            for row in said.toLocalIterator()
            if row["offset"] <= offsets[row["publisher_agent"]]
        }
        for agent, offset, imported in situation.decided:
            (found.discard if imported else found.add)((agent, offset))
        return sorted(found)

    def _begin(
        self, subscriber: str, situation: Situation, removed: list[tuple[str, int]]
    ) -> Beginning:
        """Return where the fold begins. Raises `TaskRefused` when the archive can't tell."""
        newest = self._newest(situation)
        if self._since_start:
            return Beginning(-1)
        with closing(open_blobs(self._blobs_url)) as blobs:
            begin = beginning(
                *(self._spark, self._location, blobs, newest),
                subscriber=subscriber,
                left_out=[offset for _, offset in removed],
                below=situation.lowest,
            )
        if begin.after > situation.lowest:
            raise TaskRefused(
                f"the archive is whole only from offset {begin.after} on, and a lane is at "
                f"{situation.lowest}; audit it when it has caught up"
            )
        return begin

    def _newest(self, situation: Situation) -> Target:
        """Return the furthest lane's place. Raises `TaskRefused` when it is not archived."""
        records = package_records(self._spark, self._location, situation.journal_id)
        [row] = records.agg(f.max("offset").alias("last")).collect()
        if row["last"] is None:
            raise TaskRefused(
                f"the archive has nothing of its journal {situation.journal_id}; it follows "
                "another one (JOURNAL_MISMATCH), or the archive has not begun"
            )
        if situation.highest > row["last"]:
            raise TaskRefused(
                f"it is at offset {situation.highest}, ahead of the archive, which ends at "
                f"{row['last']}; run packhorse-pipeline archive first"
            )
        return Target(situation.journal_id, tuple(situation.agents), situation.highest, "")
