"""How far an agent has come in a topic: one row each, and what this process knows of it."""

import threading
from dataclasses import dataclass

from psycopg import Connection

from packhorse.clock import Clock


@dataclass(frozen=True, slots=True)
class TopicCursor:
    """An offset of the log that `journal_id` names; of another log it means nothing (R24)."""

    journal_id: str
    offset: int


def read_cursor(connection: Connection, agent: str, topic: str) -> TopicCursor | None:
    """Return the cursor, or None before the first move."""
    row = connection.execute(
        "SELECT journal_id, log_offset FROM bookkeeping.topic_cursor "
        "WHERE agent = %s AND topic = %s",
        (agent, topic),
    ).fetchone()
    return TopicCursor(*row) if row else None


def move_cursor(connection: Connection, agent: str, topic: str, cursor: TopicCursor) -> None:
    """Put the cursor where it belongs now."""
    connection.execute(
        """
        INSERT INTO bookkeeping.topic_cursor (agent, topic, journal_id, log_offset)
        VALUES (%s, %s, %s, %s)
        ON CONFLICT (agent, topic) DO UPDATE
        SET journal_id = excluded.journal_id, log_offset = excluded.log_offset
        """,
        (agent, topic, cursor.journal_id, cursor.offset),
    )


class RecorderProgress:
    """The recorder's position in the status topic, as this process knows it. For any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cursor: TopicCursor | None = None
        self._here = False
        self._version = 0

    @property
    def here(self) -> bool:
        """Whether it is this process that records."""
        return self._here

    @property
    def version(self) -> int:
        """Another number whenever the position has changed."""
        return self._version

    @property
    def offset(self) -> int:
        """Everything below it is recorded; -1 before that is known."""
        cursor = self._cursor
        return -1 if cursor is None else cursor.offset

    def update(self, cursor: TopicCursor) -> None:
        """Note the position that this process has committed."""
        with self._changed:
            self._here = True
            self._note(cursor)

    def look(self, cursor: TopicCursor) -> None:
        """Note the position that was found in the database, unless this process is the one."""
        with self._changed:
            if not self._here:
                self._note(cursor)

    def leave(self) -> None:
        """Note that this process records no longer."""
        with self._changed:
            self._here = False

    def reached(self, end: int, timeout: float = 0.0) -> bool:
        """Return whether all below `end` is recorded, within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._cursor is not None and self._cursor.offset >= end, timeout
            )

    def _note(self, cursor: TopicCursor) -> None:
        if cursor != self._cursor:
            self._cursor = cursor
            self._version += 1
            self._changed.notify_all()


_GAP_S, _HURRIED_GAP_S = 0.03, 0.01


def keep_gap(clock: Clock, began: float, stopping: threading.Event, *, hurried: bool) -> None:
    """Wait before a round until so long after the last one `began`, or until it is stopped.

    So many hints become one round, and one that comes alone waits for nothing. The gap is shorter
    while somebody waits for what the round finds.
    """
    gap_s = _HURRIED_GAP_S if hurried else _GAP_S
    clock.wait(stopping, max(0.0, began + gap_s - clock.monotonic()))
