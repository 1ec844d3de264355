"""The queue of a subscriber: the cache past its offset, and what it said of its head (R15, R16)."""

import enum
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from packhorse.clock import Clock
from packhorse.errors import Permanent
from packhorse.runtime.metrics import PUBLISHER_QUEUE_ENTRIES, PUBLISHER_QUEUE_OLDEST_SECONDS
from packhorse.wire.messages import LaneState, SubscriberState
from packhorse_services.publisher.queues.cache import QueueView
from packhorse_services.publisher.queues.columns import QueueEntry
from packhorse_services.publisher.queues.errors import ErrorQueues
from packhorse_services.publisher.queues.feed import QueueFeed
from packhorse_services.publisher.queues.subscribers import Subscriber, Subscribers

BLOCKED_ATTEMPTS = 3


class UnknownSubscriber(Permanent):
    """No subscriber of that name has announced itself to this publisher within a day."""


class QueueState(enum.Enum):
    """What a queue is doing (R16); the last six are what its subscriber says of itself."""

    IDLE = "IDLE"
    RUNNING = "RUNNING"
    BLOCKED = "BLOCKED"
    STALE = "STALE"
    GAP = "GAP"
    JOURNAL_MISMATCH = "JOURNAL_MISMATCH"
    WAITING_FOR_LEASE = "WAITING_FOR_LEASE"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    WAITING_FOR_SUBSCRIBER = "WAITING_FOR_SUBSCRIBER"


_OWN_STATES = frozenset(
    {
        LaneState.GAP,
        LaneState.JOURNAL_MISMATCH,
        LaneState.WAITING_FOR_LEASE,
        LaneState.PAUSED,
        LaneState.STOPPED,
        LaneState.WAITING_FOR_SUBSCRIBER,
    }
)


@dataclass(frozen=True, slots=True)
class Queue:
    """One subscriber's queue at one moment."""

    subscriber: Subscriber
    lane: SubscriberState
    stale: bool
    length: int | None
    """None when the subscriber is away and what it needs is not in memory."""
    head: QueueEntry | None
    page: Sequence[QueueEntry]
    newest: int
    """Offset of the newest package, -1 when there is none."""
    failed: int
    """How many packages are in the error queue."""
    lag_s: float
    """Age of the head."""

    @property
    def state(self) -> QueueState:
        """The queue's state."""
        if self.stale:
            return QueueState.STALE
        if self.lane.state in _OWN_STATES:
            return QueueState(self.lane.state.value)
        if self.length == 0:
            return QueueState.IDLE
        if self.lane.retries >= BLOCKED_ATTEMPTS:
            return QueueState.BLOCKED
        return QueueState.RUNNING

    @property
    def tag(self) -> str:
        """The entity tag: head and newest offset, and a checksum of all else that is shown."""
        shown = (
            self.state,
            self.length,
            self.lane,
            self.failed,
            len(self.page),
            self.subscriber.editable,
        )
        checksum = zlib.crc32(repr(shown).encode())
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
        self, feed: QueueFeed, subscribers: Subscribers, errors: ErrorQueues, clock: Clock
    ) -> None:
        self.feed, self.subscribers, self.errors = feed, subscribers, errors
        self.agent, self._clock = feed.cache.agent, clock

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
        return replace(lane, offset=-1, state=LaneState.JOURNAL_MISMATCH)

    async def queue(self, name: str, *, limit: int = 0, skip_to: int = -1) -> Queue:
        """Return a queue with a page of it. Raises `UnknownSubscriber`, `QueueLoading`."""
        view = None
        while view is None:
            subscriber, lane = self.subscriber(name)
            await self.feed.need(lane.offset)
            view = self.feed.cache.view(lane.offset, limit, skip_to=skip_to)
        return self._queue(subscriber, lane, view)

    async def overview(self) -> list[Queue]:
        """Return all queues, without pages; reads nothing for subscribers that are away."""
        following = self.subscribers.following(self.agent)
        live = [one for one in following if not self.subscribers.is_stale(one)]
        if live:
            await self.feed.need(min(self.lane_of(one).offset for one in live))
        return [self._summary(one) for one in following]

    def known(self) -> list[Queue]:
        """Return all queues as far as they are in memory; reads nothing, waits for nothing."""
        return [self._summary(one) for one in self.subscribers.following(self.agent)]

    def backlog(self) -> Backlog:
        """Return what waits for the slowest live subscriber; reads nothing, waits for nothing."""
        slowest = self._slowest_live()
        if slowest is None:
            return Backlog(None)
        offset = self.lane_of(slowest).offset
        packages, size = self.feed.cache.backlog(offset)
        return Backlog(slowest.name, packages, size, self.feed.cache.covers(offset))

    def _slowest_live(self) -> Subscriber | None:
        live = (
            one
            for one in self.subscribers.following(self.agent)
            if not self.subscribers.is_stale(one)
        )
        return min(live, key=lambda one: self.lane_of(one).offset, default=None)

    def _summary(self, subscriber: Subscriber) -> Queue:
        lane = self.lane_of(subscriber)
        return self._queue(subscriber, lane, self.feed.cache.view(lane.offset, 0))

    def _queue(
        self, subscriber: Subscriber, lane: SubscriberState, view: QueueView | None
    ) -> Queue:
        newest = self.feed.cache.newest()
        head = view.head if view else None
        lag_ms = self._clock.wall_ms() - head.time_ms if head else 0
        return Queue(
            subscriber=subscriber,
            lane=lane,
            stale=self.subscribers.is_stale(subscriber),
            length=view.length if view else None,
            head=head,
            page=view.page if view else (),
            newest=-1 if newest is None else newest,
            failed=self.errors.count(subscriber.name),
            lag_s=max(0, lag_ms) / 1000,
        )

    def keep_up(self) -> None:
        """Let go of what no live subscriber needs and of subscribers that are gone, and measure."""
        self.subscribers.forget()
        following = self.subscribers.following(self.agent)
        live = [one for one in following if not self.subscribers.is_stale(one)]
        needed = [self.lane_of(one).offset + 1 for one in live]
        self.feed.cache.trim(min(needed, default=self.feed.cache.next))
        PUBLISHER_QUEUE_ENTRIES.clear()
        PUBLISHER_QUEUE_OLDEST_SECONDS.clear()
        for queue in map(self._summary, following):
            name, clearable = queue.subscriber.name, str(queue.subscriber.editable).lower()
            if queue.length is not None:
                PUBLISHER_QUEUE_ENTRIES.labels(name, clearable).set(queue.length)
                PUBLISHER_QUEUE_OLDEST_SECONDS.labels(name).set(queue.lag_s)
