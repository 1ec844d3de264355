"""Where an instance goes on when it comes back: one row, written after events were delivered."""

from datetime import datetime

from psycopg import Connection

from packhorse.jobs.events.position import EventPosition, parse_position
from packhorse.jobs.events.reading import position_now


def load_cursor(connection: Connection, instance_id: str) -> tuple[EventPosition, datetime]:
    """Return how far the instance has got, and when that was stored; a new one begins now.

    The connection is in autocommit mode and acts as the bookkeeper.
    """
    rows = connection.execute(
        """
        INSERT INTO jobs.event_cursor (instance_id, position) VALUES (%s, %s)
        ON CONFLICT (instance_id) DO UPDATE SET instance_id = excluded.instance_id
        RETURNING position, stored_at
        """,
        (instance_id, str(position_now(connection))),
    ).fetchall()
    text, stored_at = rows[0]
    return parse_position(text), stored_at


def store_cursor(connection: Connection, instance_id: str, position: EventPosition) -> datetime:
    """Store how far the instance has got, and return the time of that."""
    rows = connection.execute(
        """
        INSERT INTO jobs.event_cursor (instance_id, position) VALUES (%s, %s)
        ON CONFLICT (instance_id)
        DO UPDATE SET position = excluded.position, stored_at = excluded.stored_at
        RETURNING stored_at
        """,
        (instance_id, str(position)),
    ).fetchall()
    return datetime.fromisoformat(str(rows[0][0]))
