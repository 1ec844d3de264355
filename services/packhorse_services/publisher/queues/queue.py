"""The queue of a subscriber: the cache past its offset, and what it said of its head (R15, R16)."""

import logging
import zlib
from dataclasses import dataclass, replace

from packhorse.clock import Clock
from packhorse.errors import Permanent, Transient
from packhorse.wire.messages import LaneState, SubscriberState
from packhorse_services.publisher.queues.cache import Extent
from packhorse_services.publisher.queues.columns import QueueEntry
from packhorse_services.publisher.queues.errors import ErrorCounts
from packhorse_services.publisher.queues.feed import QueueFeed, QueueLoading
from packhorse_services.publisher.queues.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.measures import Figures, QueueMeasures
from packhorse_services.publisher.queues.pages import Wanted
from packhorse_services.publisher.queues.scanning import Page
from packhorse_services.publisher.queues.states import OWN_STATES, LengthUnknown, QueueState
from packhorse_services.publisher.queues.subscribers import Subscriber, Subscribers

logger = logging.getLogger(__name__)

BLOCKED_ATTEMPTS = 3

_OVERVIEW_S, _FETCH_S, _PAGE_S = 0.5, 2.0, 8.0
"""How long a caller waits: for an exact overview, for an exact length, for a page."""


class UnknownSubscriber(Permanent):
    """No subscriber of that name has announced itself to this publisher within a day."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One subscriber's queue at one moment."""

    subscriber: Subscriber
    lane: SubscriberState
    stale: bool
    extent: Extent
    length_unknown: LengthUnknown | None
    head: QueueEntry | None
    """None when the queue is empty, and in overviews when it is older than the cache."""
    page: Page
    newest: int
    """Offset of the newest package, -1 when there is none."""
    failed: int
    """How many packages are in the error queue."""
    lag_s: float | None
    """Age of the head; None when the head is older than the cache."""
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
        if self.lane.state in OWN_STATES:
            return QueueState(self.lane.state.value)
        if self.length == 0:
            return QueueState.IDLE
        if self.lane.retries >= BLOCKED_ATTEMPTS:
            return QueueState.BLOCKED
        return QueueState.RUNNING

    @property
    def tag(self) -> str:
        """The entity tag: head and newest offset, and a checksum of all else that is shown."""
        entries = self.page.entries
        page = (len(entries), entries[0].offset if entries else -1, self.page.behind)
        shown = (self.state, self.extent, self.lane, self.failed, self.subscriber.editable)
        checksum = zlib.crc32(repr((shown, page, self.wanted)).encode())
        head = self.head.offset if self.head else -1
        return f'W/"{head}-{self.newest}-{checksum:08x}"'


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


class Queues:
    """All queues of one publisher agent."""

    def __init__(
        self, feed: QueueFeed, subscribers: Subscribers, errors: ErrorCounts, clock: Clock
    ) -> None:
        self.feed, self.subscribers, self.errors = feed, subscribers, errors
        self.agent, self._clock = feed.cache.agent, clock
        self._measures = QueueMeasures()

    def subscriber(self, name: str) -> tuple[Subscriber, SubscriberState]:
        """Return a subscriber and its lane for this agent. Raises `UnknownSubscriber`."""
        found = self.subscribers.get(name)
        if found is None or self.agent not in found.lanes:
            raise UnknownSubscriber(
                f"no subscriber {name[:80]!r} follows {self.agent}; GET /subscribers lists them"
            )
        return found, self.lane_of(found)

    def lane_of(self, subscriber: Subscriber) -> SubscriberState:
        """Return a follower's lane. Offsets of another log than ours count for nothing (R24)."""
        lane, identity = subscriber.lanes[self.agent], self.feed.identity
        if not identity or lane.journal_id in ("", identity):
            return lane
        return replace(
            lane,
            offset=-1,
            settled_offset=-1,
            started_offset=-1,
            state=LaneState.JOURNAL_MISMATCH,
        )

    async def queue(
        self, name: str, *, limit: int = 0, skip_to: int = -1, wanted: EntryFilter = ALL
    ) -> Queue:
        """Return a queue with a page of it that begins at `skip_to` or behind.

        Its head and its page are exact, also of a queue that is older than the cache or still
        being read. Raises `UnknownSubscriber`, `QueueLoading` within ten seconds.
        """
        subscriber, lane = self.subscriber(name)
        if await self.feed.need(lane.offset, _FETCH_S):
            view = self.feed.cache.view(lane.offset, limit, skip_to=skip_to, wanted=wanted)
            if view is not None:
                return self._queue(subscriber, lane, view.head, view.page, wanted)
        identity = self.feed.identity
        head, page = await self._read(lane.offset, Wanted(skip_to, -1, limit, wanted))
        if identity != self.feed.identity:
            raise QueueLoading("the journal was replaced just now; ask again")
        return self._queue(subscriber, lane, head, page, wanted)

    async def _read(self, after: int, wanted: Wanted) -> tuple[QueueEntry | None, Page]:
        """Return head and page of a queue that begins below the cache."""
        start = max(after + 1, self.feed.cache.oldest)
        first = replace(wanted, start=max(start, wanted.start))
        page = await self.feed.page(first, _PAGE_S) if wanted.limit else Page()
        if first.start != start or wanted.filter != ALL or not page.entries:
            front = await self.feed.page(Wanted(start, -1, 1), _PAGE_S)
            return (front.entries[0] if front.entries else None), page
        return page.entries[0], page

    async def overview(self) -> list[Queue]:
        """Return all queues by name, without pages; no queue keeps another from being shown.

        Reads nothing for subscribers that are away, and waits half a second at most for what
        the others still need. Raises `QueueLoading` while not even the log's end is known.
        """
        slowest = self.slowest()
        if slowest is not None:
            try:
                await self.feed.need(self.lane_of(slowest).offset, _OVERVIEW_S)
            except QueueLoading:
                raise
            except Transient as error:
                logger.info("the queues are shown as far as known", extra={"error": str(error)})
        return self.known()

    async def one(self, name: str) -> Queue:
        """Return one queue as `overview` has it. Raises `UnknownSubscriber`."""
        subscriber, lane = self.subscriber(name)
        if not self.subscribers.is_stale(subscriber):
            await self.feed.need(lane.offset, _OVERVIEW_S)
        return self._summary(subscriber)

    def known(self) -> list[Queue]:
        """Return all queues as far as they are in memory; reads nothing, waits for nothing."""
        return [self._summary(one) for one in self.subscribers.following()]

    def slowest(self, *, editable: bool = False) -> Subscriber | None:
        """Return the live subscriber with the lowest offset, of all or of the editable ones."""
        live = self.subscribers.live()
        return min(
            (one for one in live if one.editable or not editable),
            key=lambda one: (self.lane_of(one).offset, one.name),
            default=None,
        )

    def backlog(self) -> Backlog:
        """Return what waits for the slowest live subscriber; waits for nothing.

        What is not in memory yet is asked for, so that a later answer is exact.
        """
        slowest = self.slowest()
        if slowest is None:
            return Backlog(None)
        offset = self.lane_of(slowest).offset
        self.feed.want(offset)
        packages, size = self.feed.cache.backlog(offset)
        return Backlog(slowest.name, packages, size, self.feed.cache.covers(offset))

    def _summary(self, subscriber: Subscriber) -> Queue:
        lane = self.lane_of(subscriber)
        view = self.feed.cache.view(lane.offset, 0)
        return self._queue(subscriber, lane, view.head if view else None, Page(), ALL)

    def _queue(
        self,
        subscriber: Subscriber,
        lane: SubscriberState,
        head: QueueEntry | None,
        page: Page,
        wanted: EntryFilter,
    ) -> Queue:
        newest, extent = self.feed.cache.newest(), self.feed.cache.extent(lane.offset)
        stale = self.subscribers.is_stale(subscriber)
        unknown = None if extent.length is not None else self._reason(stale)
        lag_s = None if extent.at_most else 0.0
        return Queue(
            subscriber=subscriber,
            lane=lane,
            stale=stale,
            extent=extent,
            length_unknown=unknown,
            head=head,
            page=page,
            newest=-1 if newest is None else newest,
            failed=self.errors.count(subscriber.name),
            lag_s=lag_s if head is None else self._age_s(head),
            wanted=wanted,
        )

    def _age_s(self, entry: QueueEntry) -> float:
        return max(0, self._clock.wall_ms() - entry.time_ms) / 1000

    def _reason(self, stale: bool) -> LengthUnknown:
        if self.feed.full:
            return LengthUnknown.TOO_LONG
        return LengthUnknown.AWAY if stale else LengthUnknown.LOADING

    def keep_up(self) -> None:
        """Let go of what no live subscriber needs and of subscribers that are gone, and measure."""
        self.subscribers.forget()
        slowest = self.slowest()
        if slowest is None:
            self.feed.keep_above(self.feed.cache.next)
        else:
            needed = self.lane_of(slowest).offset
            self.feed.keep_above(needed + 1)
            self.feed.want(needed)
        oldest = self.feed.cache.page(self.feed.cache.low, 1, ALL)
        known_lag_s = self._age_s(oldest.entries[0]) if oldest and oldest.entries else 0.0
        self._measures.show(
            Figures(
                one.extent.at_least,
                known_lag_s if one.lag_s is None else one.lag_s,
                one.subscriber.name,
                str(one.subscriber.editable).lower(),
            )
            for one in self.known()
        )
