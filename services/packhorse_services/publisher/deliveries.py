"""What became of one package at each subscriber: live, away, or silent for days (R18).

A package counts as imported only when it is certain that no other status of it is on its way.
"""

import enum
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse.wire.messages import Status, SubscriberState
from packhorse.wire.topics import PACKAGE_RETENTION_MS
from packhorse_services.publisher.outcomes import known
from packhorse_services.publisher.outcomes.settlement import Settlement
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.states import OWN_STATES
from packhorse_services.publisher.queues.subscribers import FORGOTTEN_S, Subscriber

Pool = AsyncConnectionPool[AsyncConnection]

_SHOWN_S = PACKAGE_RETENTION_MS / 1000
_OVERLAP_S = 3600.0
_SLOWEST_S = 0.5
_JOINED_LATER = "joined later: it began behind this package, or was moved past it"


class DeliveryState(enum.Enum):
    """Where a package is on its way to one subscriber."""

    QUEUED = "QUEUED"
    RETRYING = "RETRYING"
    IMPORTED = "IMPORTED"
    REMOVED = "REMOVED"
    REMOVED_FAILED = "REMOVED_FAILED"
    SKIPPED = "SKIPPED"


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
class _Lane:
    """A subscriber's lane, and up to where it is certain what it did."""

    state: SubscriberState
    settled: int
    stale: bool


class Deliveries:
    """Answers for the packages of one publisher agent."""

    def __init__(self, pool: Pool, queues: Queues, settlement: Settlement) -> None:
        self._pool, self._queues, self._settlement = pool, queues, settlement
        self.changes = settlement.changes
        self._slowest: tuple[int, float, int | None] = (-1, 0.0, None)

    async def of(self, package_id: str, offset: int | None) -> list[DeliveryTo]:
        """Return each subscriber's part in a package, by name."""
        # The lanes come first: what they have settled is in the database by then.
        lanes = {one.name: self._lane(one) for one in self._following()}
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            outcomes = await self._outcomes(connection, package_id, offset)
            silent = await self._silent(connection)
        known_lanes = {**silent, **lanes}
        parts = {name: self._delivery(name, lane, offset) for name, lane in known_lanes.items()}
        for name, outcome in outcomes.items():
            part = parts.get(name)
            parts[name] = outcome if part is None else replace(outcome, stale=part.stale)
        return [parts[name] for name in sorted(parts)]

    def done(self) -> Iterator[int]:
        """Yield up to which offset each live subscriber is certainly done."""
        for one in self._following():
            lane = self._lane(one)
            if not lane.stale:
                yield lane.settled

    def is_awaited(self, offset: int) -> bool:
        """Tell whether a live subscriber is not done with the package at `offset`.

        Costs nothing while that is so: all who wait share one look for each change, and one every
        half second for those who fall silent. Asked by the event loop's thread only.
        """
        version, at, slowest = self._slowest
        is_fresh = version == self.changes.version and time.monotonic() < at + _SLOWEST_S
        if is_fresh and slowest is not None and slowest < offset:
            return True
        # That everybody is done is never said by an old look: somebody may be new.
        version, at = self.changes.version, time.monotonic()
        slowest = min(self.done(), default=None)
        self._slowest = version, at, slowest
        return slowest is not None and slowest < offset

    def _following(self) -> list[Subscriber]:
        return self._queues.subscribers.following()

    def _lane(self, subscriber: Subscriber) -> _Lane:
        state = self._queues.lane_of(subscriber)
        stale = self._queues.subscribers.is_stale(subscriber)
        return _Lane(state, self._settlement.settled(subscriber.name, state), stale)

    async def _outcomes(
        self, connection: AsyncConnection, package_id: str, offset: int | None
    ) -> dict[str, DeliveryTo]:
        """Return what is recorded of the package, whatever the log's offsets mean by now."""
        rows = await connection.execute(
            """
            SELECT subscriber, status, attempts, reason FROM bookkeeping.outcome
            WHERE agent = %s AND log_offset = %s AND status <> 'IMPORTED'
            AND (package_id = %s OR (package_id = '' AND journal_id = %s))
            """,
            (self._queues.agent, offset, package_id, self._queues.feed.identity),
        )
        return {
            name: DeliveryTo(name, _STATES[status], True, attempts, reason)
            for name, status, attempts, reason in await rows.fetchall()
        }

    async def _silent(self, connection: AsyncConnection) -> Mapping[str, _Lane]:
        """Return the lanes of those who were silent for a day, and not for longer than a package.

        Whatever they told is recorded by now: it was there before we started, or a day ago.
        """
        if not self._settlement.is_certain():
            return {}
        query: Any = known.QUERY
        agent = self._queues.agent
        rows = await connection.execute(query, (agent, FORGOTTEN_S - _OVERLAP_S, _SHOWN_S))
        found = [one for row in await rows.fetchall() if (one := known.known_of(row)) is not None]
        return {
            one.message.subscriber: _Lane(lane, max(lane.settled_offset, lane.started_offset), True)
            for one in found
            for lane in one.message.states[:1]
            if lane.journal_id in ("", self._queues.feed.identity)
        }

    def _delivery(self, name: str, lane: _Lane, offset: int | None) -> DeliveryTo:
        state = lane.state
        if offset is None:
            return DeliveryTo(name, DeliveryState.QUEUED, lane.stale, reason=_why_it_stands(state))
        if state.started_offset >= offset:
            return DeliveryTo(name, DeliveryState.SKIPPED, lane.stale, reason=_JOINED_LATER)
        if lane.settled >= offset:
            return DeliveryTo(name, DeliveryState.IMPORTED, lane.stale)
        if state.offset < offset and state.retries > 0 and self._is_head(state, offset):
            return DeliveryTo(
                *(name, DeliveryState.RETRYING, lane.stale),
                *(state.retries, state.last_error, state.next_attempt_ms),
            )
        return DeliveryTo(name, DeliveryState.QUEUED, lane.stale, reason=_why_it_stands(state))

    def _is_head(self, lane: SubscriberState, offset: int) -> bool:
        view = self._queues.feed.cache.view(lane.offset, 0)
        return view is not None and view.head is not None and view.head.offset == offset


def _why_it_stands(lane: SubscriberState) -> str:
    """Return the state of a lane that imports nothing, and what its subscriber says of it."""
    if lane.state not in OWN_STATES:
        return ""
    return f"{lane.state.value}: {lane.last_error}" if lane.last_error else lane.state.value


_STATES = {
    Status.REMOVED.value: DeliveryState.REMOVED,
    Status.REMOVED_FAILED.value: DeliveryState.REMOVED_FAILED,
    Status.SKIPPED.value: DeliveryState.SKIPPED,
}
