"""What a subscriber in a situation must hold: a snapshot's content and the packages since then."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.open import open_blobs
from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.audit.case import Case
from packhorse_services.pipeline.audit.joining import Joining, joining
from packhorse_services.pipeline.audit.situation import Situation
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.beginning import Beginning, beginning
from packhorse_services.pipeline.history.content import Content, base_writes
from packhorse_services.pipeline.history.decoding import CLEAR
from packhorse_services.pipeline.history.events import kept, package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.fold import fold
from packhorse_services.pipeline.history.packages import Packages
from packhorse_services.pipeline.history.read import (
    archived,
    bronze_version,
    counted,
    package_records,
    removed_by,
    with_headers,
)
from packhorse_services.pipeline.history.target import Target, nothing_archived
from packhorse_services.pipeline.location import Location

_KEPT = 2


@dataclass(frozen=True)
class Expected:
    """Content that must be there; `notes` are for the report.

    `events` are those that it follows from, `agents` has the publisher agent of every offset.
    `past` gives what the lanes imported, also before what the fold went on from; None: no more.
    """

    content: Content
    events: DataFrame
    agents: DataFrame
    notes: tuple[str, ...] = ()
    past: Callable[[], Packages] | None = None

    @property
    def clears(self) -> DataFrame:
        """What removed some of it."""
        return self.events.where(f.col("kind") == CLEAR)

    def events_of(self, agent: str) -> DataFrame:
        """Return the events of one lane."""
        own = self.agents.where(f.col("publisher_agent") == agent)
        return self.events.join(own, "offset", "left_semi")


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
        began = self._joining(subscriber, situation)
        removed = tuple(self._removed(subscriber, situation))
        case = Case(situation, removed, began.start, self._since_start)
        if case.key not in self._kept:
            newest = self._newest(situation)
            try:
                begin = self._begin(subscriber, case, newest)
            except TaskRefused as error:
                told = began.notes if situation.joined else ()
                raise TaskRefused("; ".join([str(error), *told])) from None
            self._make(case, begin, newest.version)
        self._kept.move_to_end(case.key)
        return replace(self._kept[case.key][0], notes=began.notes)

    def close(self) -> None:
        """Let go of all of them."""
        while self._kept:
            self._kept.popitem()[1][1].close()

    def _make(self, case: Case, begin: Beginning, version: int) -> None:
        while len(self._kept) >= _KEPT:
            self._kept.popitem(last=False)[1][1].close()
        packages = self._packages(case, version, begin)
        records = package_records(self._spark, self._location, case.situation.journal_id, version)
        with ExitStack() as stack:
            events = stack.enter_context(kept(package_events(self._spark, packages)))
            base = base_writes(self._spark, begin.base, self._blobs_url) if begin.base else None
            before = min(begin.after, *(after for after, _ in packages.spans.values()))
            winners = stack.enter_context(kept(fold(events, base, before)))
            texts = Texts(packages, self._blobs_url, begin.base, base_offset=before)
            agents = records.select("offset", "publisher_agent")
            past = self._past(case, version, begin)
            expected = Expected(Content(winners, texts), events, agents, past=past)
            self._kept[case.key] = (expected, stack.pop_all())
            self.folds += 1

    def _packages(self, case: Case, version: int, begin: Beginning) -> Packages:
        return counted(
            *(self._spark, self._location, case.situation.journal_id),
            version=version,
            spans=case.spans(begin),
            numbered_after=dict.fromkeys(case.numbered(begin), begin.numbered_after),
            applied=begin.base.sequences if begin.base else (),
            absent=[offset for _, offset in case.removed],
        )

    def _past(self, case: Case, version: int, begin: Beginning) -> Callable[[], Packages] | None:
        """Return what finds, if needed, all packages of the lanes; None: no more."""
        spans = case.imported(begin)
        if len(spans) < 2 or spans == case.spans(begin):
            return None
        return lambda: counted(
            *(self._spark, self._location, case.situation.journal_id),
            version=version,
            spans=spans,
            numbered_after=dict.fromkeys(case.numbered(begin), begin.whole_after),
            absent=[offset for _, offset in case.removed],
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

    def _joining(self, subscriber: str, situation: Situation) -> Joining:
        if self._since_start:
            return Joining()
        with closing(open_blobs(self._blobs_url)) as blobs:
            return joining(blobs, subscriber, situation)

    def _begin(self, subscriber: str, case: Case, newest: Target) -> Beginning:
        """Return where the fold begins. Raises `TaskRefused` when the archive can't tell."""
        if self._since_start:
            return Beginning(-1)
        lowest = case.situation.lowest
        with closing(open_blobs(self._blobs_url)) as blobs:
            begin = beginning(
                *(self._spark, self._location, blobs, newest),
                subscriber=subscriber,
                left_out=[offset for _, offset in case.removed],
                below=lowest,
                start=case.unlike,
                added=case.added,
            )
        if begin.after > lowest:
            raise TaskRefused(
                f"the archive is whole only from offset {begin.after} on, and a lane is at "
                f"{lowest}; audit it when it has caught up"
            )
        return begin

    def _newest(self, situation: Situation) -> Target:
        """Return the furthest lane's place. Raises `TaskRefused` when it is not archived."""
        version = bronze_version(self._location)
        records = package_records(self._spark, self._location, situation.journal_id, version)
        [row] = records.agg(f.max("offset").alias("last")).collect()
        if row["last"] is None:
            every = archived(self._spark, self._location, tables.BRONZE, schemas.BRONZE, version)
            if with_headers(every).isEmpty():
                raise TaskRefused(nothing_archived(self._location))
            raise TaskRefused(
                f"the archive has nothing of its journal {situation.journal_id}; it follows "
                "another one (JOURNAL_MISMATCH), or the archive has not begun"
            )
        if situation.highest > row["last"]:
            raise TaskRefused(
                f"it is at offset {situation.highest}, ahead of the archive, which ends at "
                f"{row['last']}; run packhorse-pipeline archive first"
            )
        return Target(situation.journal_id, tuple(situation.agents), situation.highest, "", version)
