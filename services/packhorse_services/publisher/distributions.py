"""What became of one request at each subscriber.

The request itself is in the outbox, as long as the log keeps its package. What subscribers did
with it follows from their announcements and statuses.
"""

import asyncio
import enum
from dataclasses import dataclass
from datetime import datetime

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse.wire.messages import PackageEntry, SubscriberState
from packhorse_services.publisher import outbox
from packhorse_services.publisher.queues.follower import TopicFollower
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import Subscriber

Pool = AsyncConnectionPool[AsyncConnection]


class DeliveryState(enum.Enum):
    """Where a package is on its way to one subscriber."""

    QUEUED = "QUEUED"
    RETRYING = "RETRYING"
    IMPORTED = "IMPORTED"
    REMOVED = "REMOVED"
    REMOVED_FAILED = "REMOVED_FAILED"


class DistributionState(enum.Enum):
    """Where a distribution is: committed, in the journal, done with by every live subscriber."""

    ACCEPTED = "ACCEPTED"
    QUEUED = "QUEUED"
    DISTRIBUTED = "DISTRIBUTED"


@dataclass(frozen=True, slots=True)
class DeliveryTo:
    """One subscriber's part."""

    subscriber: str
    state: DeliveryState
    stale: bool
    attempts: int = 0
    reason: str = ""
    next_attempt_ms: int = 0


@dataclass(frozen=True, slots=True)
class Distribution:
    """A request and its package; `offset` is None until the journal has it."""

    entry: PackageEntry
    accepted_at: datetime
    offset: int | None


class Distributions:
    """Answers for the distributions of one publisher agent."""

    def __init__(self, pool: Pool, queues: Queues, announcements: TopicFollower) -> None:
        self._pool, self._queues, self._announcements = pool, queues, announcements

    async def find(self, package_id: str) -> Distribution | None:
        """Return a distribution, or None when there is none or the log has forgotten it."""
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            found = await connection.execute(
                "SELECT entry, accepted_at, log_offset FROM bookkeeping.outbox "
                "WHERE package_id = %s",
                (package_id,),
            )
            row = await found.fetchone()
        if row is None:
            return None
        entry = outbox.entry_of(row[0])
        return (
            Distribution(entry, row[1], row[2])
            if entry.publisher_agent == self._queues.agent
            else None
        )

    def deliveries(self, offset: int | None) -> list[DeliveryTo]:
        """Return each subscriber's part, by name."""
        return [
            self._delivery(one, self._queues.lane_of(one), offset)
            for one in self._queues.subscribers.following(self._queues.agent)
        ]

    def state(self, offset: int | None) -> DistributionState:
        """Return where the package at `offset` is as a whole."""
        if offset is None:
            return DistributionState.ACCEPTED
        live = [lane.offset for lane in self._live_lanes()]
        if live and min(live) >= offset:
            return DistributionState.DISTRIBUTED
        return DistributionState.QUEUED

    async def wait(self, offset: int, seconds: float) -> DistributionState:
        """Return the state once every live subscriber has the package, or after `seconds`."""
        changes = self._announcements.changes
        try:
            async with asyncio.timeout(seconds):
                while self._live_lanes() and self.state(offset) is DistributionState.QUEUED:
                    with changes.subscribed() as news:
                        if self.state(offset) is DistributionState.QUEUED:
                            await news.wait()
        except TimeoutError:
            pass
        return self.state(offset)

    def _live_lanes(self) -> list[SubscriberState]:
        subscribers = self._queues.subscribers
        return [
            self._queues.lane_of(one)
            for one in subscribers.following(self._queues.agent)
            if not subscribers.is_stale(one)
        ]

    def _delivery(
        self, subscriber: Subscriber, lane: SubscriberState, offset: int | None
    ) -> DeliveryTo:
        name, stale = subscriber.name, self._queues.subscribers.is_stale(subscriber)
        if offset is None or lane.offset < offset:
            if offset is not None and lane.retries > 0 and self._is_head(lane, offset):
                return DeliveryTo(
                    *(name, DeliveryState.RETRYING, stale),
                    *(lane.retries, lane.last_error, lane.next_attempt_ms),
                )
            return DeliveryTo(name, DeliveryState.QUEUED, stale)
        failed = self._queues.errors.failure(name, offset)
        if failed is not None:
            return DeliveryTo(
                name, DeliveryState.REMOVED_FAILED, stale, failed.attempts, failed.reason
            )
        removed = self._queues.errors.was_removed(name, offset)
        return DeliveryTo(name, DeliveryState.REMOVED if removed else DeliveryState.IMPORTED, stale)

    def _is_head(self, lane: SubscriberState, offset: int) -> bool:
        view = self._queues.feed.cache.view(lane.offset, 0)
        return view is not None and view.head is not None and view.head.offset == offset
