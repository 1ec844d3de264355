"""Subscribers as they last announced themselves, kept for as long as packages are (R16).

The discovery topic forgets them after an hour. All of it runs in the caller's transaction, as the
bookkeeper; ages are by the database's clock.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.wire.codec import decode_discovery, encode_discovery
from packhorse.wire.messages import DiscoveryMessage
from packhorse.wire.record import Undecodable, type_headers
from packhorse_services.publisher.queues.subscribers import Subscriber

logger = logging.getLogger(__name__)

_CHANGED_S = 5.0
_UNCHANGED_S = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """A subscriber's last announcement, and when it entered the journal."""

    message: DiscoveryMessage
    seen_ms: int
    age_ms: int


class Remembering:
    """Writes what has changed, each subscriber's at most every few seconds. Of one thread."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._written: dict[str, tuple[bytes, float]] = {}
        self._due = 0.0

    def due(self, subscribers: Sequence[Subscriber]) -> bool:
        """Tell whether it is time to look for changes: now and then, and when somebody is new."""
        is_new = any(one.name not in self._written for one in subscribers)
        return is_new or time.monotonic() >= self._due

    def write(self, connection: Connection, subscribers: Sequence[Subscriber]) -> None:
        """Store those that have changed, or were not written for a minute."""
        now = time.monotonic()
        self._due = now + _CHANGED_S
        changed: list[tuple[Subscriber, bytes]] = []
        for one in subscribers:
            announcement = encode_discovery(_message(one, self._agent)).value
            before, at = self._written.get(one.name, (b"", 0.0))
            if announcement != before or now >= at + _UNCHANGED_S:
                changed.append((one, announcement))
        _write(connection, self._agent, changed)
        self._written = {one.name: self._written.get(one.name, (b"", 0.0)) for one in subscribers}
        self._written |= {one.name: (announcement, now) for one, announcement in changed}


def _message(subscriber: Subscriber, agent: str) -> DiscoveryMessage:
    """Return the announcement as far as the agent is concerned."""
    return DiscoveryMessage(
        subscriber.name,
        (subscriber.lanes[agent],),
        editable=subscriber.editable,
        max_retries=subscriber.max_retries,
        endpoint=subscriber.endpoint,
        subscriber_instance=subscriber.instance,
    )


def _write(connection: Connection, agent: str, changed: Sequence[tuple[Subscriber, bytes]]) -> None:
    if not changed:
        return
    connection.execute(
        """
        INSERT INTO bookkeeping.known_subscriber (agent, subscriber, announcement, seen_at)
        SELECT %b, name, announcement, to_timestamp(seen_ms / 1000.0)
        FROM unnest(%b::text[], %b::bytea[], %b::bigint[]) AS told (name, announcement, seen_ms)
        ON CONFLICT (agent, subscriber) DO UPDATE
        SET announcement = excluded.announcement, seen_at = excluded.seen_at
        WHERE excluded.seen_at >= known_subscriber.seen_at
        """,
        (
            agent,
            [one.name for one, _ in changed],
            [announcement for _, announcement in changed],
            [one.seen_ms for one, _ in changed],
        ),
    )


QUERY = """
    SELECT subscriber, announcement, (extract(epoch FROM seen_at) * 1000)::bigint,
        greatest(0, extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint
    FROM bookkeeping.known_subscriber
    WHERE agent = %s AND seen_at < clock_timestamp() - make_interval(secs => %s)
    AND seen_at > clock_timestamp() - make_interval(secs => %s)
"""
"""Rows for `known_of`; wants the agent, the least age and the most, in seconds."""


def known_of(row: tuple[str, bytes, int, int]) -> Known | None:
    """Return what a row of `QUERY` holds, or None when another version wrote it."""
    try:
        message = decode_discovery(type_headers(DiscoveryMessage), row[1])
    except Undecodable:
        logger.warning("a known subscriber can't be read", extra={"subscriber": row[0]})
        return None
    return Known(message, row[2], row[3])


def load(connection: Connection, agent: str, most_s: float) -> list[Known]:
    """Return who announced itself within `most_s` seconds."""
    rows = connection.execute(QUERY, (agent, -_SKEW_S, most_s)).fetchall()
    return [known for row in rows if (known := known_of(row)) is not None]


_SKEW_S = 3600.0
"""The journal's clock may be ahead of the database's."""


def forget(connection: Connection, agent: str, older_than_s: float, limit: int) -> int:
    """Remove up to `limit` subscribers that were silent for that long; returns how many."""
    return connection.execute(
        """
        DELETE FROM bookkeeping.known_subscriber WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM bookkeeping.known_subscriber
            WHERE agent = %s AND seen_at < clock_timestamp() - make_interval(secs => %s) LIMIT %s))
        """,
        (agent, older_than_s, limit),
    ).rowcount
