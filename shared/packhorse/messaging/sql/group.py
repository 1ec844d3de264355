"""One group of records into the log: one transaction, and an honest answer to what became of it.

Every group carries a random append id. When the answer to COMMIT is lost, the group's own place
in the log is looked up on a new connection, behind the counter row's lock, which the lost
transaction held until it ended: the append id there is the group's, or it was never committed.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import stamina
from psycopg import sql

from packhorse.db.engine import Timeouts
from packhorse.messaging.api import AppendUnknown, JournalUnavailable, NotAppended, TopicMissing
from packhorse.messaging.sql.catalogue import SqlTopic, find_topics
from packhorse.messaging.sql.hints import announcement
from packhorse.messaging.sql.segments import (
    SegmentLimits,
    SqlSegment,
    create_segment,
    find_segment,
)
from packhorse.messaging.sql.session import Sessions, SharedSession
from packhorse.messaging.sql.waiting import Waiting

_PATIENCE_S = 5.0
"""How long an append waits for a database that restarts, while nothing has been committed."""

APPENDER_TIMEOUTS = Timeouts(idle_in_transaction_ms=5_000)
"""A paused appender holds a counter row for no longer than this; others wait for it."""


@dataclass(slots=True)
class Slice:
    """The part of a group that goes to one partition; `first` is known once the counter moved."""

    topic_id: int
    number: int
    partition_id: int
    records: list[Waiting] = field(default_factory=list)
    first: int = 0

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(record.size for record in self.records)


class GroupWriter:
    """Writes groups, each on a session that it borrows for it; used by one thread."""

    def __init__(
        self, sessions: Sessions, limits: SegmentLimits, reconcile_s: float = 30.0
    ) -> None:
        """Take sessions with the limits of an appender."""
        self._sessions, self._limits, self._reconcile_s = sessions, limits, reconcile_s
        self._open: dict[int, SqlSegment] = {}
        """By partition: the segment that its last group went into."""

    def topics(self, names: Sequence[str]) -> Mapping[str, SqlTopic]:
        """Return those topics that exist. Raises `NotAppended` when the database is away."""
        try:
            for attempt in _patiently(_PATIENCE_S):
                with attempt, self._sessions.use() as connection:
                    found = find_topics(connection, names)
        except JournalUnavailable as error:
            raise NotAppended(f"nothing was sent: {error}") from error
        return found

    def write(self, slices: Sequence[Slice]) -> None:
        """Append every record of every slice, or none, and fill in where each slice begins.

        Raises `NotAppended` or `AppendUnknown` for all of them; `TopicMissing` when a partition
        is gone, in which case nothing was written.
        """
        with self._sessions.lend() as session:
            self._write(session, slices)

    def _write(self, session: SharedSession, slices: Sequence[Slice]) -> None:
        append_id = secrets.randbits(63)
        ordered = sorted(slices, key=lambda part: part.partition_id)  # no two groups deadlock
        try:
            for attempt in _patiently(_PATIENCE_S):
                with attempt, session.use() as connection:
                    if not self._continue(connection, ordered, append_id):
                        self._begin(connection, ordered, append_id)
        except JournalUnavailable as error:
            raise NotAppended(f"nothing was committed: {error}") from error
        self._commit(session, connection, ordered, append_id)

    # An exchange costs most where the database is far away; with a counter's lock held it costs
    # whoever appends to the same partition as much.
    def _continue(
        self, connection: psycopg.Connection, parts: Sequence[Slice], append_id: int
    ) -> bool:
        """Begin, and append to the segments that took the last groups, in one exchange.

        False, with no transaction begun, if one is not known or takes no more of its partition.
        The counters stay locked to the end: commits come in offset order (R1).
        """
        # Forgotten first: a segment's table may be gone by now.
        known = [self._open.pop(part.partition_id, None) for part in parts]
        segments = [segment for segment in known if segment is not None]
        if len(segments) < len(parts):
            return False
        moved = self._append(connection, list(zip(parts, segments, strict=True)), append_id)
        if len(moved) < len(parts):
            connection.rollback()
            return False
        for part, segment, first in zip(parts, segments, moved, strict=True):
            part.first, self._open[part.partition_id] = first, segment
        return True

    def _append(
        self,
        connection: psycopg.Connection,
        parts: Sequence[tuple[Slice, SqlSegment]],
        append_id: int,
    ) -> list[int]:
        """Return the first offset of each part whose segment took it."""
        try:
            with connection.pipeline():
                connection.execute("BEGIN")
                asked = [
                    connection.execute(
                        sql.SQL(_CONTINUE).format(segment.table),
                        self._given(part, segment, append_id),
                    )
                    for part, segment in parts
                ]
            return [row[0] for cursor in asked for row in cursor]
        except psycopg.errors.InsufficientPrivilege:
            return []  # `_begin` says to which topic

    def _given(self, part: Slice, segment: SqlSegment, append_id: int) -> dict[str, Any]:
        return {
            "partition": part.partition_id,
            "start": segment.start,
            "append_id": append_id,
            "count": len(part.records),
            "size": part.size,
            "most_bytes": self._limits.bytes,
            "most_records": self._limits.records,
            **_columns(part),
        }

    def _begin(
        self, connection: psycopg.Connection, parts: Sequence[Slice], append_id: int
    ) -> None:
        """Begin, and append to whatever segments are open, or to new ones."""
        connection.execute("BEGIN")
        for part in parts:
            with _refusals(connection, part):
                segment, time_ms = self._take_offsets(connection, part)
                given = {"before": part.first - 1, "time_ms": time_ms, "append_id": append_id}
                connection.execute(
                    sql.SQL(_INSERT).format(segment.table), {**given, **_columns(part)}
                )
            self._open[part.partition_id] = segment

    def _take_offsets(self, connection: psycopg.Connection, part: Slice) -> tuple[SqlSegment, int]:
        count, size = len(part.records), part.size
        row = connection.execute(_MOVE, (count, size, part.partition_id)).fetchone()
        if row is None:
            raise _refusal(connection, part)
        next_, time_ms, start, held = row
        part.first = next_ - count
        if start is None or self._limits.exceeded(held, next_ - start):
            start = part.first
            create_segment(connection, SqlSegment(part.partition_id, start), size)
        return SqlSegment(part.partition_id, start), time_ms

    def _commit(
        self,
        session: SharedSession,
        connection: psycopg.Connection,
        parts: Sequence[Slice],
        append_id: int,
    ) -> None:
        """Commit, and behind that, in the same exchange, tell waiting readers."""
        hint = announcement({part.topic_id for part in parts})
        try:
            connection.execute(b"COMMIT; " + hint, prepare=False)
        except psycopg.Error as error:
            session.reset()
            if not self._is_committed(session, parts[0], append_id):
                raise NotAppended(f"the journal's database has not committed: {error}") from error

    def _is_committed(self, session: SharedSession, part: Slice, append_id: int) -> bool:
        """Find out what became of a commit without an answer. Raises `AppendUnknown`."""
        try:
            for attempt in _patiently(self._reconcile_s):
                with attempt, session.use() as connection:
                    committed = _is_in_log(connection, part, append_id)
        except JournalUnavailable as error:
            raise AppendUnknown(
                f"the connection broke at the commit, and then: {error}; look into the log"
            ) from error
        return committed


@contextmanager
def _refusals(connection: psycopg.Connection, part: Slice) -> Iterator[None]:
    """Say at once what a login without the right would need; trying again does not give it."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        connection.rollback()
        raise _refusal(connection, part) from error


def _refusal(connection: psycopg.Connection, part: Slice) -> NotAppended | TopicMissing:
    """Return why a counter could not be moved: it is gone, or other logins' to move."""
    row = connection.execute(
        "SELECT t.name FROM journal.topic t JOIN journal.partition p ON p.topic_id = t.id"
        " WHERE p.id = %s",
        (part.partition_id,),
    ).fetchone()
    if row is None:
        return TopicMissing("the topic was removed; look at its identity before appending again")
    return NotAppended(
        f"this login of the journal's database may not append to {row[0]}; `packhorse topics "
        "grant`, as the owner of the journal's tables, allows it"
    )


def _patiently(seconds: float) -> Iterable[stamina.Attempt]:
    """Try again while the database is away."""
    return stamina.retry_context(
        JournalUnavailable, attempts=None, timeout=seconds, wait_max=1.0, wait_jitter=0.1
    )


def _columns(part: Slice) -> dict[str, Any]:
    return {
        "keys": [record.stored_key for record in part.records],
        "headers": [record.headers for record in part.records],
        "bodies": [record.body for record in part.records],
    }


_INSERT = """
    INSERT INTO {} ("offset", time_ms, append_id, key, headers, body)
    SELECT %(before)s + n, %(time_ms)s, %(append_id)s, key, headers, body
    FROM unnest(%(keys)b::bytea[], %(headers)b::bytea[], %(bodies)b::bytea[])
         WITH ORDINALITY AS given (key, headers, body, n)
"""


_CONTINUE = """
    WITH moved AS (
        UPDATE journal.partition
        SET next = next + %(count)s, segment_bytes = segment_bytes + %(size)s,
            last_ms = greatest(last_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        WHERE id = %(partition)s AND segment_start = %(start)s
            AND segment_bytes + %(size)s <= %(most_bytes)s
            AND next + %(count)s - segment_start <= %(most_records)s
        RETURNING next - %(count)s AS first, last_ms
    ), written AS (
        INSERT INTO {} ("offset", time_ms, append_id, key, headers, body)
        SELECT first - 1 + n, last_ms, %(append_id)s, key, headers, body
        FROM moved, unnest(%(keys)b::bytea[], %(headers)b::bytea[], %(bodies)b::bytea[])
             WITH ORDINALITY AS given (key, headers, body, n)
    )
    SELECT first FROM moved
"""


_MOVE = """
    UPDATE journal.partition
    SET next = next + %s, segment_bytes = segment_bytes + %s,
        last_ms = greatest(last_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    WHERE id = %s RETURNING next, last_ms, segment_start, segment_bytes
"""


def _is_in_log(connection: psycopg.Connection, part: Slice, append_id: int) -> bool:
    """Whether the group is in the log, once the transaction that wrote it has surely ended."""
    with connection.transaction():
        row = connection.execute(
            "SELECT oldest FROM journal.partition WHERE id = %s FOR UPDATE", (part.partition_id,)
        ).fetchone()
        if row is None or row[0] > part.first:
            raise AppendUnknown("the connection broke at the commit, and the log moved on since")
        segment = find_segment(connection, part.partition_id, part.first)
        if segment is None:
            return False
        found = connection.execute(
            sql.SQL('SELECT append_id FROM {} WHERE "offset" = %s').format(segment.table),
            (part.first,),
        ).fetchone()
        return found is not None and found[0] == append_id
