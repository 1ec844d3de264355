"""How far an agent has come in a topic: one row each, moved with what was done up to there.

All of it runs in the caller's transaction, as the bookkeeper.
"""

from dataclasses import dataclass

from psycopg import Connection


@dataclass(frozen=True, slots=True)
class Cursor:
    """An offset of the log that `journal_id` names; of another log it means nothing (R24)."""

    journal_id: str
    offset: int


def read_cursor(connection: Connection, agent: str, topic: str) -> Cursor | None:
    """Return the cursor, or None before the first move."""
    row = connection.execute(
        "SELECT journal_id, log_offset FROM bookkeeping.topic_cursor "
        "WHERE agent = %s AND topic = %s",
        (agent, topic),
    ).fetchone()
    return Cursor(*row) if row else None


def move_cursor(connection: Connection, agent: str, topic: str, cursor: Cursor) -> None:
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
