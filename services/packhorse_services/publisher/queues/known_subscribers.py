"""Subscribers as they last announced themselves, kept for as long as packages are (R16).

The discovery topic forgets them after an hour. All of it runs in the caller's transaction, as the
bookkeeper; ages are by the database's clock.
"""

import logging
import time
from collections.abc import Sequence
from uuid import uuid4

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool

from packhorse.bookkeeping import subscriber_rows
from packhorse.bookkeeping.audit_rows import AuditRow
from packhorse.bookkeeping.subscriber_rows import AnnouncementAge, AnnouncementRow
from packhorse.db.transactions import as_bookkeeper
from packhorse.errors import Permanent
from packhorse.wire.codec import decode_discovery, encode_discovery
from packhorse.wire.messages import DiscoveryMessage
from packhorse.wire.record import Undecodable, type_headers
from packhorse_services.publisher.queues.queue import Queues, UnknownSubscriber
from packhorse_services.publisher.queues.subscribers import (
    FORGOTTEN_S,
    STALE_S,
    AnnouncedSubscriber,
    Subscribers,
)

logger = logging.getLogger(__name__)

_CHANGED_S = 5.0
_UNCHANGED_S = 60.0
_NEVER = (b"", 0.0)


class KnownSubscriberWriter:
    """Writes what has changed, each subscriber's at most every few seconds. Of one thread."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._written: dict[str, tuple[bytes, float]] = {}
        self._due = 0.0

    def due(self, subscribers: Sequence[AnnouncedSubscriber]) -> bool:
        """Return whether it is time to look for changes: now and then, and when somebody is new."""
        is_new = any(one.name not in self._written for one in subscribers)
        return is_new or time.monotonic() >= self._due

    def write(self, connection: Connection, subscribers: Sequence[AnnouncedSubscriber]) -> None:
        """Store those that have changed, or were not written for a minute."""
        now = time.monotonic()
        self._due = now + _CHANGED_S
        changed: list[AnnouncementRow] = []
        for row in map(row_of, subscribers):
            before, at = self._written.get(row.subscriber, _NEVER)
            if row.announcement != before or now >= at + _UNCHANGED_S:
                changed.append(row)
        subscriber_rows.write(connection, self._agent, changed)
        self._written = {one.name: self._written.get(one.name, _NEVER) for one in subscribers}
        self._written |= {row.subscriber: (row.announcement, now) for row in changed}


def row_of(subscriber: AnnouncedSubscriber) -> AnnouncementRow:
    """Return what is stored of a subscriber that follows the agent."""
    announcement = encode_discovery(subscriber.message).value
    return AnnouncementRow(subscriber.name, announcement, subscriber.seen_ms)


def announcement_of(row: AnnouncementAge) -> DiscoveryMessage | None:
    """Return what a row holds, or None when another version wrote it."""
    try:
        return decode_discovery(type_headers(DiscoveryMessage), row.announcement)
    except Undecodable:
        logger.warning("a known subscriber can't be read", extra={"subscriber": row.subscriber})
        return None


def seed(connection: Connection, subscribers: Subscribers, agent: str) -> None:
    """Make known who announced itself within a day; the discovery topic may have forgotten them."""
    for row in subscriber_rows.read(connection, agent, above_s=-_SKEW_S, below_s=FORGOTTEN_S):
        if (message := announcement_of(row)) is not None:
            subscribers.seed(message, row.seen_ms, row.age_ms)


_SKEW_S = 3600.0
"""The journal's clock may be ahead of the database's."""


class SubscriberLive(Permanent):
    """The subscriber announces itself, and would be known again at once."""


_STORED = """
    SELECT EXISTS (SELECT FROM bookkeeping.outcome WHERE agent = %(agent)s
            AND subscriber = %(subscriber)s)
        OR EXISTS (SELECT FROM bookkeeping.command WHERE agent = %(agent)s
            AND subscriber = %(subscriber)s)
"""


class KnownSubscribers:
    """Whom one publisher agent has ever known; all replicas forget the same within half a minute.

    Names are such that a database can hold.
    """

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection], queues: Queues) -> None:
        self._pool, self._queues = pool, queues

    async def forget(self, name: str, *, user: str) -> None:
        """Forget a subscriber as it last announced itself. What it did stays known.

        Raises `SubscriberLive`, and `UnknownSubscriber`, also for who is forgotten already.
        """
        subscribers, agent = self._queues.subscribers, self._queues.agent
        found = subscribers.get(name)
        if found is not None and not found.follows:
            found = None  # it lives for other agents
        if found is not None and not subscribers.is_stale(found):
            raise SubscriberLive(
                f"{name} announces itself; end its program, and ask again {STALE_S:g} s later"
            )
        row = None if found is None else row_of(found)
        async with as_bookkeeper(self._pool) as connection:
            if row is not None:
                await subscriber_rows.write_one(connection, agent, row)
            until_ms = await subscriber_rows.forget_one(connection, agent, name)
            if until_ms is None:
                raise UnknownSubscriber(
                    f"no subscriber {name[:80]!r} follows {agent}; GET /subscribers lists them"
                )
            detail = {"last_seen_ms": until_ms}
            done = AuditRow(name, agent, uuid4().hex, user, "FORGET", detail)
            await done.write_async(connection)
        subscribers.leave_out({name: until_ms})

    async def check(self, subscriber: str) -> None:
        """Raise `UnknownSubscriber` for whom nobody announced and nothing is stored of."""
        try:
            self._queues.subscriber(subscriber)
        except UnknownSubscriber:
            if not await self._is_stored(subscriber):
                raise

    async def _is_stored(self, subscriber: str) -> bool:
        async with as_bookkeeper(self._pool) as connection:
            agent = self._queues.agent
            if await subscriber_rows.is_stored(connection, agent, subscriber):
                return True
            requested = {"agent": agent, "subscriber": subscriber}
            row = await (await connection.execute(_STORED, requested)).fetchone()
        return bool(row and row[0])
