"""What became of one package at each subscriber: live, away, or silent for days (R18).

A package counts as imported only when it is certain that no other status of it is on its way.
"""

import enum
import time
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from packhorse.bookkeeping import subscriber_rows
from packhorse.db.transactions import as_bookkeeper
from packhorse.wire.messages import SubscriberState, SubscriptionState
from packhorse_services.publisher.distributions.import_moments import imported_by
from packhorse_services.publisher.outcomes.distribution_state import Reached, ReachedBy
from packhorse_services.publisher.outcomes.status_watermark import StatusWatermark
from packhorse_services.publisher.queues import known_subscribers
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.queue_states import OWN_STATES
from packhorse_services.publisher.queues.subscribers import FORGOTTEN_S, AnnouncedSubscriber

Pool = AsyncConnectionPool[AsyncConnection]

_OVERLAP_S = 3600.0
_SKEW_MS = 3_600_000
"""How far the clocks of publisher and journal may be apart, beside a day of silence."""
_LOOK_S = 0.5
_JOINED_LATER = "joined later: it began behind this package, or was moved past it"


class DeliveryState(enum.Enum):
    """Where a package is on its way to one subscriber."""

    QUEUED = "QUEUED"
    RETRYING = "RETRYING"
    IMPORTED = "IMPORTED"
    REMOVED = "REMOVED"
    REMOVED_FAILED = "REMOVED_FAILED"
    SKIPPED = "SKIPPED"
    DUPLICATE = "DUPLICATE"


@dataclass(frozen=True, slots=True)
class DeliveryTo:
    """One subscriber's part."""

    subscriber: str
    state: DeliveryState
    stale: bool
    attempts: int = 0
    reason: str = ""
    next_attempt_ms: int = 0
    since_ms: int = 0
    """When it was done with it otherwise than by importing it, or blocked by it; 0: not known."""
    imported_by_ms: int = 0
    """When it was first seen that it had imported it; 0: not known."""


@dataclass(frozen=True, slots=True)
class _Subscription:
    """A subscriber's subscription, and up to where it is certain what it did."""

    state: SubscriberState
    settled: int
    stale: bool


class _Live:
    """Up to where live subscribers are done, as of one look."""

    def __init__(self, settled: Mapping[str, int]) -> None:
        self._settled = settled
        self._slowest = min(settled.values(), default=None)

    def is_behind(self, offset: int, targets: Collection[str]) -> bool:
        """Return whether one of the targets, or of all, is not done with the package there."""
        if targets:
            return any(self._settled.get(name, offset) < offset for name in targets)
        return self._slowest is not None and self._slowest < offset


class DeliveryStatusQuery:
    """Answers for the packages of one publisher agent."""

    def __init__(
        self, pool: Pool, queues: Queues, watermark: StatusWatermark, *, look_s: float = _LOOK_S
    ) -> None:
        self._pool, self._queues, self._watermark = pool, queues, watermark
        self._look_s = look_s
        self.changes = watermark.changes
        self._look: tuple[int, float, _Live] = (-1, 0.0, _Live({}))

    def reached(self) -> Reached:
        """Return how far all subscribers are; costs no reading."""
        subscriptions = {one.name: self._subscription(one) for one in self._following()}
        return Reached.by(
            {
                name: ReachedBy(one.settled, one.state.started_offset, one.stale)
                for name, one in subscriptions.items()
            }
        )

    async def not_imported(
        self, connection: AsyncConnection, targets: Mapping[int, Collection[str]]
    ) -> AbstractSet[tuple[int, str]]:
        """Return by offset and id which packages a subscriber is done with and did not import.

        `targets` are whom packages are for, by their offsets; empty: all. What is not for a
        subscriber does not count. Of one that its subscriber did not name the id is empty.
        """
        named = [(offset, name) for offset, names in targets.items() for name in names]
        rows = await connection.execute(
            """
            SELECT DISTINCT log_offset, package_id FROM bookkeeping.outcome
            WHERE agent = %(agent)s AND log_offset = ANY(%(offsets)s)
            AND status <> 'IMPORTED' AND NOT left_out
            AND (package_id <> '' OR journal_id = %(journal)s)
            AND (log_offset <> ALL(%(named)s::bigint[]) OR (log_offset, subscriber) IN
                (SELECT * FROM unnest(%(named)s::bigint[], %(names)s::text[])))
            """,
            {
                "agent": self._queues.agent,
                "journal": self._queues.feed.identity,
                "offsets": list(targets),
                "named": [offset for offset, _ in named],
                "names": [name for _, name in named],
            },
        )
        return {(offset, package_id) for offset, package_id in await rows.fetchall()}

    async def of(self, package_id: str, offset: int | None, accepted_ms: float) -> list[DeliveryTo]:
        """Return each subscriber's part in a package that was accepted then, by name."""
        # The subscriptions come first: what they have settled is in the database by then.
        subscriptions = {one.name: self._subscription(one) for one in self._following()}
        async with as_bookkeeper(self._pool) as connection:
            outcomes = await self._outcomes(connection, package_id, offset)
            silent = await self._silent(connection, accepted_ms)
            parts = {
                name: self._delivery(name, subscription, offset)
                for name, subscription in {**silent, **subscriptions}.items()
            }
            for name, outcome in outcomes.items():
                if not _has_it(outcome):
                    part = parts.get(name)
                    parts[name] = outcome if part is None else replace(outcome, stale=part.stale)
            imported = [name for name in parts.keys() - outcomes if _has_it(parts[name])]
            if offset is not None and imported:
                at = await imported_by(connection, self._queues, offset, accepted_ms, imported)
                for name in imported:
                    parts[name] = replace(parts[name], imported_by_ms=at.get(name, 0))
        return [parts[name] for name in sorted(parts)]

    def live(self) -> dict[str, int]:
        """Return by name up to which offset each live subscriber is certainly done."""
        subscriptions = {one.name: self._subscription(one) for one in self._following()}
        return {name: one.settled for name, one in subscriptions.items() if not one.stale}

    def is_awaited(self, offset: int, targets: Collection[str] = ()) -> bool:
        """Return whether a live subscriber is not done with the package at `offset`.

        `targets` are those that it is for; none: all.
        Costs nothing while that is so: all who wait share one look for each change, and one every
        `look_s` seconds for those who fall silent. Asked by the event loop's thread only.
        """
        version, at, live = self._look
        is_fresh = version == self.changes.version and time.monotonic() < at + self._look_s
        if is_fresh and live.is_behind(offset, targets):
            return True
        # That everybody is done is never said by an old look: somebody may be new.
        version, at = self.changes.version, time.monotonic()
        live = _Live(self.live())
        self._look = version, at, live
        return live.is_behind(offset, targets)

    def _following(self) -> list[AnnouncedSubscriber]:
        return self._queues.subscribers.following()

    def _subscription(self, subscriber: AnnouncedSubscriber) -> _Subscription:
        state = self._queues.subscription_of(subscriber)
        stale = self._queues.subscribers.is_stale(subscriber)
        return _Subscription(state, self._watermark.settled(subscriber.name, state), stale)

    async def _outcomes(
        self, connection: AsyncConnection, package_id: str, offset: int | None
    ) -> dict[str, DeliveryTo]:
        """Return what is recorded of the package, whatever the log's offsets mean by now.

        IMPORTED is the trace of what was taken back.
        """
        rows = await connection.execute(
            """
            SELECT subscriber, status, attempts, reason,
                (extract(epoch FROM decided_at) * 1000)::bigint FROM bookkeeping.outcome
            WHERE agent = %s AND log_offset = %s
            AND (package_id = %s OR (package_id = '' AND journal_id = %s))
            """,
            (self._queues.agent, offset, package_id, self._queues.feed.identity),
        )
        return {
            name: DeliveryTo(
                name, DeliveryState(status), True, attempts, reason, since_ms=decided_ms
            )
            for name, status, attempts, reason, decided_ms in await rows.fetchall()
        }

    async def _silent(
        self, connection: AsyncConnection, accepted_ms: float
    ) -> Mapping[str, _Subscription]:
        """Return the subscriptions of subscribers silent for a day, as long as they are known.

        All their reports are recorded by now: they came before we started, or a day ago. They
        have nothing that was accepted since, whatever its offset (R31).
        """
        if not self._watermark.is_certain():
            return {}
        rows = await subscriber_rows.read_silent(
            connection, self._queues.agent, FORGOTTEN_S - _OVERLAP_S
        )
        silent: dict[str, _Subscription] = {}
        for row in rows:
            message = known_subscribers.announcement_of(row)
            for subscription in message.states[:1] if message else ():
                if subscription.journal_id in ("", self._queues.feed.identity):
                    was_before = row.seen_ms < accepted_ms - _SKEW_MS
                    silent[row.subscriber] = _silent_subscription(subscription, was_before)
        return silent

    def _delivery(self, name: str, subscription: _Subscription, offset: int | None) -> DeliveryTo:
        state = subscription.state
        queued = DeliveryTo(
            name, DeliveryState.QUEUED, subscription.stale, reason=_why_it_stands(state)
        )
        if offset is None:
            return queued
        if state.started_offset >= offset:
            return DeliveryTo(name, DeliveryState.SKIPPED, subscription.stale, reason=_JOINED_LATER)
        if subscription.settled >= offset:
            return DeliveryTo(name, DeliveryState.IMPORTED, subscription.stale)
        if state.offset < offset and _has_failed(state) and self._is_head(state, offset):
            return DeliveryTo(
                name,
                DeliveryState.RETRYING,
                subscription.stale,
                attempts=state.retries,
                reason=state.last_error,
                next_attempt_ms=state.next_attempt_ms,
                since_ms=state.blocked_since_ms,
            )
        return queued

    def _is_head(self, subscription: SubscriberState, offset: int) -> bool:
        view = self._queues.feed.cache.view(subscription.offset, 0)
        return view is not None and view.head is not None and view.head.offset == offset


def _has_it(part: DeliveryTo) -> bool:
    return part.state is DeliveryState.IMPORTED


def _silent_subscription(subscription: SubscriberState, was_before: bool) -> _Subscription:
    if was_before or subscription.state in (
        SubscriptionState.GAP,
        SubscriptionState.JOURNAL_MISMATCH,
    ):
        return _Subscription(replace(subscription, offset=-1, started_offset=-1), -1, True)
    return _Subscription(
        subscription, max(subscription.settled_offset, subscription.started_offset), True
    )


def _has_failed(subscription: SubscriberState) -> bool:
    """Return whether the first package has failed, also when that does not count as an attempt."""
    return subscription.retries > 0 or (
        bool(subscription.last_error) and subscription.state not in OWN_STATES
    )


def _why_it_stands(subscription: SubscriberState) -> str:
    """Return the state of a subscription that imports nothing, and the reason it announced."""
    if subscription.state not in OWN_STATES:
        return ""
    state, error = subscription.state.value, subscription.last_error
    return f"{state}: {error}" if error else state
