"""The queue of a subscriber: the cache past its offset, and what it said of its head (R15, R16)."""

import logging
import zlib
from dataclasses import dataclass, replace

from packhorse.clock import Clock
from packhorse.errors import Permanent, Transient
from packhorse.wire.messages import SubscriberState, SubscriptionState
from packhorse_services.publisher.queues.cache.columns import QueueEntry
from packhorse_services.publisher.queues.cache.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.cache.journal_pages import PageRange
from packhorse_services.publisher.queues.cache.queue_cache import QueueLength
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed, QueueLoading
from packhorse_services.publisher.queues.cache.scanning import QueuePage
from packhorse_services.publisher.queues.error_counts import ErrorCounts
from packhorse_services.publisher.queues.queue_measures import QueueFigures, QueueMeasures
from packhorse_services.publisher.queues.queue_states import OWN_STATES, LengthUnknown, QueueState
from packhorse_services.publisher.queues.subscribers import AnnouncedSubscriber, Subscribers

logger = logging.getLogger(__name__)

BLOCKED_ATTEMPTS = 3

_OVERVIEW_S, _FETCH_S, _PAGE_S = 0.5, 2.0, 8.0
"""How long a caller waits: for an exact overview, for an exact length, for a page."""


class UnknownSubscriber(Permanent):
    """No subscriber of that name has announced itself to this publisher within a day."""


@dataclass(frozen=True, slots=True)
class SubscriberQueue:
    """One subscriber's queue at one moment."""

    subscriber: AnnouncedSubscriber
    subscription: SubscriberState
    stale: bool
    extent: QueueLength
    length_unknown: LengthUnknown | None
    head: QueueEntry | None
    """None when the queue is empty, and in overviews when it is older than the cache."""
    page: QueuePage
    newest: int
    """Offset of the newest package, -1 when there is none."""
    end: int
    """Offset of the log's last record, whatever it is; -1 when it is not known."""
    failed: int
    """How many packages are in the error queue."""
    lag_s: float | None
    """Age of the head; None when the head is older than the cache."""
    journal_id: str
    """The log that the offsets are of; empty in overviews while it is not known."""
    wanted: EntryFilter = ALL

    @property
    def length(self) -> int | None:
        """The exact length, None when only `extent` is known."""
        return self.extent.length

    @property
    def state(self) -> QueueState:
        """The queue's state."""
        if self.stale:
            return QueueState.STALE
        if self.subscription.state in OWN_STATES:
            return QueueState(self.subscription.state.value)
        if self.length == 0 and not self.fails_unseen:
            return QueueState.IDLE
        if self.subscription.retries >= BLOCKED_ATTEMPTS:
            return QueueState.BLOCKED
        has_failed = self.subscription.retries > 0 or self.subscription.last_error
        return QueueState.RETRYING if has_failed else QueueState.RUNNING

    @property
    def fails_unseen(self) -> bool:
        """Whether the subscriber fails at a record that no queue shows, as one that is damaged."""
        return self.length == 0 and self.subscription.retries > 0

    @property
    def last(self) -> int:
        """The last offset that a clear of all that is here removes."""
        return self.end if self.fails_unseen else self.newest

    @property
    def tag(self) -> str:
        """What its entity tag holds: head and newest offset, and a checksum of all else."""
        entries = self.page.entries
        page = (len(entries), entries[0].offset if entries else -1, self.page.behind)
        shown = (self.state, self.extent, self.subscription, self.failed, self.subscriber.editable)
        checksum = zlib.crc32(repr((shown, page, self.wanted)).encode())
        head = self.head.offset if self.head else -1
        return f"{head}-{self.last}-{checksum:08x}"


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for the slowest live subscriber, as far as it is known."""

    subscriber: str | None
    """None when there is no live subscriber."""
    packages: int = 0
    bytes: int = 0
    """Of the bodies, as stored."""
    exact: bool = True
    """False while older packages are not in memory: then there is more than this."""


def _of_another_log(subscription: SubscriberState, reason: str) -> SubscriberState:
    """Return a subscription whose offsets mean nothing here, and whose own state is kept."""
    state = subscription.state
    return replace(
        subscription,
        offset=-1,
        settled_offset=-1,
        started_offset=-1,
        package_id="",
        state=state if state in OWN_STATES else SubscriptionState.JOURNAL_MISMATCH,
        last_error=subscription.last_error or reason,
    )


class Queues:
    """All queues of one publisher agent."""

    def __init__(
        self, feed: QueueFeed, subscribers: Subscribers, errors: ErrorCounts, clock: Clock
    ) -> None:
        self.feed, self.subscribers, self.errors = feed, subscribers, errors
        self.agent, self.clock = feed.cache.agent, clock
        self._measures = QueueMeasures(self.agent)

    def subscriber(self, name: str) -> tuple[AnnouncedSubscriber, SubscriberState]:
        """Return a subscriber and its subscription for this agent. Raises `UnknownSubscriber`."""
        found = self.subscribers.get(name)
        if found is None or not found.follows:
            raise UnknownSubscriber(
                f"no subscriber {name[:80]!r} follows {self.agent}; `packhorse get subscribers` or "
                "GET /subscribers lists them"
            )
        return found, self.subscription_of(found)

    def subscription_of(self, subscriber: AnnouncedSubscriber) -> SubscriberState:
        """Return a follower's subscription as far as it proves anything.

        Offsets of another log than ours count for nothing, nor do those of a log that holds
        another package there (R24, R31).
        """
        shown, identity = subscriber.subscription, self.feed.identity
        if identity and shown.journal_id not in ("", identity):
            return _of_another_log(shown, "its database was filled from another journal")
        if self.feed.positions.verdict(shown) is False:
            gone = f"the journal does not hold {shown.package_id} at offset {shown.offset} any more"
            return _of_another_log(shown, gone)
        if shown.state is SubscriptionState.JOURNAL_MISMATCH:
            return _of_another_log(shown, "")
        if shown.state is SubscriptionState.GAP:
            return replace(shown, settled_offset=-1, started_offset=-1)
        return shown

    async def queue(
        self, name: str, *, limit: int = 0, skip_to: int = -1, wanted: EntryFilter = ALL
    ) -> SubscriberQueue:
        """Return a queue with a page of it that begins at `skip_to` or behind.

        Its head and its page are exact, also of a queue that is older than the cache or still
        being read. Raises `UnknownSubscriber`, `QueueLoading` within ten seconds.
        """
        await self.feed.need(self.subscriber(name)[1].offset, _FETCH_S)
        identity = self.feed.identity
        subscriber, subscription = self.subscriber(name)  # as this log judges it
        pages = PageRange(skip_to, -1, limit, wanted)
        view = self.feed.cache.view(subscription.offset, limit, skip_to=skip_to, wanted=wanted)
        read = (view.head, view.page) if view else await self._read(subscription.offset, pages)
        queue = self._queue(subscriber, subscription, *read, wanted)
        if not identity or queue.journal_id != identity:
            raise QueueLoading("the journal was replaced just now; ask again")
        return queue

    async def _read(self, after: int, wanted: PageRange) -> tuple[QueueEntry | None, QueuePage]:
        """Return head and page of a queue that begins below the cache."""
        start = max(after + 1, self.feed.cache.oldest)
        first = replace(wanted, start=max(start, wanted.start))
        page = await self.feed.page(first, _PAGE_S) if wanted.limit else QueuePage()
        if first.start != start or wanted.filter != ALL or not page.entries:
            return await self.feed.first(start, _PAGE_S), page
        return page.entries[0], page

    async def overview(self) -> list[SubscriberQueue]:
        """Return all queues by name, without pages; no queue keeps another from being shown.

        Reads nothing for subscribers that are away, and waits half a second at most for what
        the others still need. Raises `QueueLoading` while not even the log's end is known.
        """
        slowest = self.slowest()
        if slowest is not None:
            try:
                await self.feed.need(self.subscription_of(slowest).offset, _OVERVIEW_S)
            except QueueLoading:
                raise
            except Transient as error:
                logger.info("the queues are shown as far as known", extra={"error": str(error)})
        return self.known()

    async def one(self, name: str) -> SubscriberQueue:
        """Return one queue as `overview` has it. Raises `UnknownSubscriber`."""
        subscriber, subscription = self.subscriber(name)
        if not self.subscribers.is_stale(subscriber):
            await self.feed.need(subscription.offset, _OVERVIEW_S)
        return self._summary(subscriber)

    def known(self) -> list[SubscriberQueue]:
        """Return all queues as far as they are in memory; reads nothing, waits for nothing."""
        return [self._summary(one) for one in self.subscribers.following()]

    def slowest(self) -> AnnouncedSubscriber | None:
        """Return the live subscriber with the lowest offset."""
        return min(
            self.subscribers.live(),
            key=lambda one: (self.subscription_of(one).offset, one.name),
            default=None,
        )

    def backlog(self) -> Backlog:
        """Return what waits for the slowest live subscriber; waits for nothing.

        What is not in memory yet is asked for, so that a later answer is exact.
        """
        slowest = self.slowest()
        if slowest is None:
            return Backlog(None)
        offset = self.subscription_of(slowest).offset
        self.feed.want(offset)
        packages, size = self.feed.cache.backlog(offset)
        return Backlog(slowest.name, packages, size, self.feed.cache.covers(offset))

    def _summary(self, subscriber: AnnouncedSubscriber) -> SubscriberQueue:
        subscription = self.subscription_of(subscriber)
        view = self.feed.cache.view(subscription.offset, 0)
        return self._queue(subscriber, subscription, view.head if view else None, QueuePage(), ALL)

    def _queue(
        self,
        subscriber: AnnouncedSubscriber,
        subscription: SubscriberState,
        head: QueueEntry | None,
        page: QueuePage,
        wanted: EntryFilter,
    ) -> SubscriberQueue:
        newest, extent = self.feed.cache.newest(), self.feed.cache.extent(subscription.offset)
        stale = self.subscribers.is_stale(subscriber)
        unknown = None if extent.length is not None else self._reason(stale)
        lag_s = None if extent.at_most else 0.0
        return SubscriberQueue(
            subscriber=subscriber,
            subscription=subscription,
            stale=stale,
            extent=extent,
            length_unknown=unknown,
            head=head,
            page=page,
            newest=-1 if newest is None else newest,
            end=self.feed.cache.next - 1,
            failed=self.errors.count(subscriber.name),
            lag_s=lag_s if head is None else self._age_s(head),
            wanted=wanted,
            journal_id=self.feed.identity,  # last: all above is of this log if it was so before
        )

    def _age_s(self, entry: QueueEntry) -> float:
        return max(0, self.clock.wall_ms() - entry.time_ms) / 1000 if entry.time_ms else 0.0

    def _reason(self, stale: bool) -> LengthUnknown:
        if self.feed.full:
            return LengthUnknown.TOO_LONG
        return LengthUnknown.AWAY if stale else LengthUnknown.LOADING

    def keep_up(self) -> None:
        """Remove what no live subscriber needs and subscribers that are gone, and measure."""
        self.subscribers.forget()
        slowest = self.slowest()
        if slowest is None:
            self.feed.keep_above(self.feed.cache.next)
        else:
            needed = self.subscription_of(slowest).offset
            self.feed.keep_above(needed + 1)
            self.feed.want(needed)
        oldest = self.feed.cache.page(self.feed.cache.low, 1, ALL)
        known_lag_s = self._age_s(oldest.entries[0]) if oldest and oldest.entries else 0.0
        self._measures.show(
            QueueFigures(
                one.extent.at_least,
                known_lag_s if one.lag_s is None else one.lag_s,
                self.subscribers.silent_s(one.subscriber),
                one.subscriber.name,
                str(one.subscriber.editable).lower(),
            )
            for one in self.known()
        )
