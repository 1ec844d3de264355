"""Reads stored events in pages: each event that commits, once, whatever the order of commits.

Events of one page come by number: what was stored after something else was seen comes after it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import psycopg
from psycopg import Connection, sql

from packhorse.jobs.event import APPLICATION, Event
from packhorse.jobs.events.position import EventPosition, EventRound, InvalidPosition
from packhorse.jobs.topic_sql import topic_part

logger = logging.getLogger(__name__)

PAGE = 200
PAGE_BYTES = 4 * 1024 * 1024
"""A page has one event more than this at most, so that even the largest one is read."""

_NEWS = """
WITH now AS (SELECT pg_current_snapshot() AS snapshot),
     ended AS (SELECT %(seen)s::pg_snapshot AS snapshot),
     bounds AS (
         SELECT min(number + 0) AS first, max(number + 0) AS last FROM jobs.event, now
         WHERE xid >= pg_snapshot_xmax(%(seen)s::pg_snapshot)
           AND xid < pg_snapshot_xmax(now.snapshot)
         UNION ALL
         SELECT min(number + 0), max(number + 0) FROM jobs.event
         WHERE xid = ANY(ARRAY(SELECT pg_snapshot_xip(%(seen)s::pg_snapshot))))
SELECT now.snapshot::text, pg_snapshot_xmax(ended.snapshot) > pg_snapshot_xmax(now.snapshot),
       (SELECT min(first) FROM bounds), (SELECT max(last) FROM bounds)
FROM now, ended
"""
"""The present snapshot, whether the position is of a later one, and the bounds of what is new.

`number + 0` because there are few that are new: the index of all numbers is the wrong one.
"""

_PAGE = sql.SQL("""
SELECT number, topic, application, created_at, properties, echo FROM (
    SELECT *, sum(octet_length(properties)) OVER (ORDER BY number) - octet_length(properties)
              AS before
    FROM (
        SELECT number, topic, application, created_at, properties::text AS properties, echo
        FROM jobs.event
        WHERE number > %s AND number <= %s
          AND pg_visible_in_snapshot(xid, %s::pg_snapshot)
          AND NOT pg_visible_in_snapshot(xid, %s::pg_snapshot)
          AND (application <> %s OR echo) AND ({topics})
        ORDER BY number LIMIT %s
    ) AS page
) AS measured
WHERE before < %s ORDER BY number
""")

_GAP = """
SELECT EXISTS (
    SELECT FROM jobs.event_horizon WHERE removed_to IS NOT NULL
    AND pg_snapshot_xmax(seen) <= pg_snapshot_xmax(pg_current_snapshot())
    AND (removed_to >= pg_snapshot_xmax(%(seen)s::pg_snapshot) OR EXISTS (
        SELECT FROM pg_snapshot_xip(%(seen)s::pg_snapshot) AS open
        WHERE open <= removed_to AND pg_visible_in_snapshot(open, seen))))
"""
"""Whether something was pruned that is not visible in the snapshot."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it is stored, by the database's clock."""

    number: int
    """Unique; events may become visible in another order."""
    topic: str
    application: str
    created_at: datetime
    properties: dict[str, Any]
    echo: bool

    def at(self, instance_id: str) -> Event:
        """Return it as that instance is given it: local where it comes from, marked elsewhere."""
        if self.application == instance_id:
            return Event(self.topic, self.properties)
        return Event(self.topic, {**self.properties, APPLICATION: self.application})


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events that a reader has not had yet, and where it goes on after them."""

    events: tuple[StoredEvent, ...]
    position: EventPosition
    gap: bool
    """Something that it has not had was pruned, or this is another database than the position's."""

    @property
    def more(self) -> bool:
        """Whether there are more events to be read at once."""
        return self.position.round is not None


def position_now(connection: Connection) -> EventPosition:
    """Return the position after everything that has been committed."""
    [(seen,)] = connection.execute("SELECT pg_current_snapshot()::text").fetchall()
    return EventPosition(seen)


def read_page(
    connection: Connection,
    position: EventPosition,
    *,
    reader: str = "",
    patterns: Sequence[str] = ("**",),
    most: int = PAGE,
) -> EventPage:
    """Return the next events, `most` at most, whose topics a pattern covers; others are passed.

    The own events of an instance that is the reader are passed as well, unless they are echoed.
    The connection is in autocommit mode and acts as the bookkeeper. A position may be read from
    again and again until its events are pruned. Raises `InvalidPosition`, `psycopg.Error`.
    """
    try:
        return _read(connection, position, _Wanted(reader, patterns, most))
    except psycopg.DataError as error:
        raise InvalidPosition("that is no position of an event; begin without one") from error


@dataclass(frozen=True, slots=True)
class _Wanted:
    reader: str
    patterns: Sequence[str]
    most: int


def _read(connection: Connection, position: EventPosition, wanted: _Wanted) -> EventPage:
    seen, reading = position.seen, position.round
    if reading is None:
        rows = connection.execute(_NEWS, {"seen": seen}).fetchall()
        now, is_later, first, last = rows[0]
        if is_later:
            return EventPage((), EventPosition(now), gap=True)
        if first is None:
            return EventPage((), EventPosition(now), _has_gap(connection, seen))
        reading = EventRound(now, first - 1, last)
    events = _events(connection, seen, reading, wanted)
    left = EventRound(reading.upto, events[-1][0], reading.last) if events else None
    ended = left is None or left.passed >= reading.last
    after = EventPosition(reading.upto) if ended else EventPosition(seen, left)
    readable = tuple(event for row in events if (event := _stored(row)) is not None)
    return EventPage(readable, after, _has_gap(connection, seen))


def _events(
    connection: Connection, seen: str, reading: EventRound, wanted: _Wanted
) -> Sequence[tuple[Any, ...]]:
    """Return rows by number; what has become visible after the round is not its."""
    if not wanted.patterns:
        return ()
    topics = [topic_part(pattern) for pattern in wanted.patterns]
    given = (
        *(reading.passed, reading.last, reading.upto, seen, wanted.reader),
        *(value for _, values in topics for value in values),
        *(wanted.most, PAGE_BYTES),
    )
    text = _PAGE.format(topics=sql.SQL(" OR ").join([part for part, _ in topics]))
    return connection.execute(text, given).fetchall()


def _has_gap(connection: Connection, seen: str) -> bool:
    """Look after reading: whoever prunes says so before."""
    return bool(connection.execute(_GAP, {"seen": seen}).fetchall()[0][0])


def _stored(row: tuple[Any, ...]) -> StoredEvent | None:
    number, topic, application, created_at, properties, echo = row
    try:
        return StoredEvent(number, topic, application, created_at, orjson.loads(properties), echo)
    except orjson.JSONDecodeError as error:  # not written by packhorse; the next one may be
        logger.error(
            "the stored event %d can't be read: %s", number, error, extra={"number": number}
        )
        return None
