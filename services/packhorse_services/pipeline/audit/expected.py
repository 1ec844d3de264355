"""What a subscriber in a situation must hold: a snapshot's content and the packages since then."""

from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.open import open_blobs
from packhorse.bookkeeping.positions import LoadedSnapshot
from packhorse.snapshots.snapshot import left_out
from packhorse_services.pipeline.audit.archived import ArchiveEnd
from packhorse_services.pipeline.audit.subscriber_state import Situation, SubscriberStart, joining
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.bases import AddedSubscription
from packhorse_services.pipeline.history.beginning import BaseRules, Beginning, beginning
from packhorse_services.pipeline.history.content import ContentHistory, content_from
from packhorse_services.pipeline.history.decoding import CLEAR
from packhorse_services.pipeline.history.events import package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.headers import PackageHeaders
from packhorse_services.pipeline.history.packages import BronzeVersion, Packages
from packhorse_services.pipeline.history.read import (
    PackageSelection,
    counted,
    removed_by,
)
from packhorse_services.pipeline.history.target import HistoryTarget
from packhorse_services.pipeline.pieces import kept


@dataclass(frozen=True, slots=True)
class Case:
    """A subscriber's situation, what it removed, and the snapshot that it began with, if known.

    `named` are the offsets of the packages that are for it and not for all; `named_alone` those of
    the snapshot's agents that name it, or whom the snapshot is for, and not both.
    """

    situation: Situation
    removed: tuple[tuple[str, int], ...]
    """Publisher agent and offset of the packages that it did not import, in order."""
    start: LoadedSnapshot | None
    named: tuple[int, ...]
    named_alone: Collection[int]
    since_start: bool
    """Whether only what came after each subscription's beginning counts."""

    @property
    def key(self) -> object:
        """What is equal for those that must hold the same."""
        start = self.unlike
        reported = (start.offset, start.subscriber, start.left_out) if start else None
        situation = self.situation
        own = (situation.journal_id, situation.subscriptions, self.removed, self.named)
        return *own, frozenset(self.added), reported

    @property
    def added(self) -> dict[str, AddedSubscription]:
        """The subscriptions that were added after its snapshot, by agent: they began elsewhere."""
        if self.since_start:
            return {}
        return {
            subscription.agent: AddedSubscription(
                subscription.started,
                subscription.offset,
                frozenset(offset for agent, offset in self.removed if agent == subscription.agent),
            )
            for subscription in self.situation.added
        }

    @property
    def unlike(self) -> LoadedSnapshot | None:
        """What it began with, when that has other packages than it would have imported itself."""
        start, added = self.start, self.added
        if start is None:
            return None
        own = (at for agent, at in self.removed if at <= start.offset and agent not in added)
        alike = all(at > start.offset for at in self.named_alone)
        return None if alike and start.left_out == left_out(own) else start

    def spans(self, begin: Beginning) -> dict[str, tuple[int, int]]:
        """Return, of each agent, above which offset its packages count, and up to which."""
        numbered = self.numbered(begin)
        return {
            subscription.agent: (
                begin.after if subscription.agent in numbered else subscription.started,
                subscription.offset,
            )
            for subscription in self.situation.subscriptions
        }

    def imported(self, begin: Beginning) -> dict[str, tuple[int, int]]:
        """Return the same of what each subscription has imported itself, as far back as is known.

        What a snapshot held that lacks other packages is not in the archive: it is passed by.
        """
        known = self.spans(begin)
        if self.unlike is not None:
            return known
        return {
            subscription.agent: (
                min(known[subscription.agent][0], max(begin.whole_after, subscription.started)),
                subscription.offset,
            )
            for subscription in self.situation.subscriptions
        }

    def numbered(self, begin: Beginning) -> set[str]:
        """Return the agents of whom what came before `begin` counts, and their numbers (R27)."""
        if self.since_start:
            return set()
        alone = self.added.keys() - set(begin.base.publisher_agents if begin.base else ())
        return set(self.situation.agents) - alone


_KEPT = 2


@dataclass(frozen=True)
class Expected:
    """Content that must be there; `notes` are for the report.

    `events` are those that it follows from. `past` gives what the subscriptions imported, also
    before what the fold went on from; None: no more.
    """

    content: ContentHistory
    events: DataFrame
    notes: tuple[str, ...] = ()
    past: Callable[[], Packages] | None = None

    @property
    def clears(self) -> DataFrame:
        """What removed some of it."""
        return self.events.where(f.col("kind") == CLEAR)

    def events_of(self, agent: str) -> DataFrame:
        """Return the events of one subscription."""
        return self.events.where(f.col("publisher_agent") == agent)


class Expectations:
    """Makes and keeps expected contents; subscribers in the same situation share one."""

    def __init__(
        self, spark: SparkSession, end: ArchiveEnd, blobs_url: str, *, since_start: bool
    ) -> None:
        self._spark, self._location, self._blobs_url = spark, end.location, blobs_url
        self._end, self._since_start = end, since_start
        self._kept: OrderedDict[object, tuple[Expected, ExitStack]] = OrderedDict()
        self._asked: dict[tuple[str, BronzeVersion], PackageHeaders] = {}
        self.folds = 0

    def of(self, subscriber: str, situation: Situation) -> Expected:
        """Return what `subscriber` must hold.

        Raises `TaskRefused` when the archive lacks it: it ends too early, begins too late, has
        a gap, or is of another journal.
        """
        began = self._joining(situation)
        newest = self._end.reached(situation)
        removed = tuple(self._removed(subscriber, situation))  # what it said of these is there now
        headers, start = self._headers(situation, newest.version), began.start
        named = tuple(headers.named_for(subscriber, situation.agents))
        alone = headers.named_alone(subscriber, start.subscriber, start.agents) if start else ()
        case = Case(situation, removed, start, named, alone, self._since_start)
        if case.key not in self._kept:
            try:
                begin = self._begin(subscriber, case, newest)
            except TaskRefused as error:
                raise TaskRefused("; ".join([str(error), *began.notes])) from None
            self._make(subscriber, case, begin, newest.version)
        self._kept.move_to_end(case.key)
        return replace(self._kept[case.key][0], notes=began.notes)

    def _headers(self, situation: Situation, version: BronzeVersion) -> PackageHeaders:
        """Return what headers say, which is the same for all subscribers."""
        asked = situation.journal_id, version
        if asked not in self._asked:
            self._asked[asked] = PackageHeaders(self._location, *asked)
        return self._asked[asked]

    def close(self) -> None:
        """Close all of them."""
        while self._kept:
            self._kept.popitem()[1][1].close()

    def _make(self, subscriber: str, case: Case, begin: Beginning, version: BronzeVersion) -> None:
        while len(self._kept) >= _KEPT:
            self._kept.popitem(last=False)[1][1].close()
        packages = self._packages(subscriber, case, version, begin)
        with ExitStack() as stack:
            events = stack.enter_context(kept(package_events(self._spark, packages)))
            before = min(begin.after, *(after for after, _ in packages.spans.values()))
            texts = Texts(packages, self._blobs_url, begin.base, base_offset=before)
            content = stack.enter_context(content_from(events, texts))
            past = self._past(subscriber, case, version, begin)
            expected = Expected(content, events, past=past)
            self._kept[case.key] = (expected, stack.pop_all())
            self.folds += 1

    def _packages(
        self, subscriber: str, case: Case, version: BronzeVersion, begin: Beginning
    ) -> Packages:
        wanted = PackageSelection(
            case.situation.journal_id,
            version,
            spans=case.spans(begin),
            numbered_after=dict.fromkeys(case.numbered(begin), begin.numbered_after),
            applied=begin.base.sequences if begin.base else (),
            absent=[offset for _, offset in case.removed],
            subscriber=subscriber,
        )
        return counted(self._location, wanted)

    def _past(
        self, subscriber: str, case: Case, version: BronzeVersion, begin: Beginning
    ) -> Callable[[], Packages] | None:
        """Return what finds, if needed, all packages of the subscriptions; None: no more."""
        spans = case.imported(begin)
        if len(spans) < 2 or spans == case.spans(begin):
            return None
        wanted = PackageSelection(
            case.situation.journal_id,
            version,
            spans,
            numbered_after=dict.fromkeys(case.numbered(begin), begin.whole_after),
            absent=[offset for _, offset in case.removed],
            subscriber=subscriber,
        )
        return partial(counted, self._location, wanted)

    def _removed(self, subscriber: str, situation: Situation) -> list[tuple[str, int]]:
        """Return what it did not import; its own word counts more than what has arrived of it."""
        said = removed_by(self._location, subscriber, situation.agents, situation.journal_id)
        offsets = {
            subscription.agent: subscription.offset for subscription in situation.subscriptions
        }
        found = {(agent, offset) for agent, offset in said if offset <= offsets[agent]}
        for agent, offset, imported in situation.decided:
            (found.discard if imported else found.add)((agent, offset))
        return sorted(found)

    def _joining(self, situation: Situation) -> SubscriberStart:
        if self._since_start:
            return SubscriberStart()
        with closing(open_blobs(self._blobs_url)) as blobs:
            return joining(blobs, situation)

    def _begin(self, subscriber: str, case: Case, newest: HistoryTarget) -> Beginning:
        """Return where the fold begins. Raises `TaskRefused` when the archive does not hold it."""
        if self._since_start:
            return Beginning(-1)
        lowest = case.situation.lowest
        with closing(open_blobs(self._blobs_url)) as blobs:
            rules = BaseRules(
                subscriber=subscriber,
                left_out=[offset for _, offset in case.removed],
                below=lowest,
                start=case.unlike,
                added=case.added,
            )
            headers = self._headers(case.situation, newest.version)
            begin = beginning(blobs, newest, rules, headers)
        if begin.after > lowest:
            raise TaskRefused(
                f"the archive is whole only from offset {begin.after} on, and a subscription is at "
                f"{lowest}; audit it when it has caught up"
            )
        return begin
