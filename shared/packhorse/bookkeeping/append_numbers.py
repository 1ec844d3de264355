"""What others ask of the author's place in the journal: its last number, and which log it is in."""

from psycopg import Connection


def last_number(connection: Connection) -> tuple[int, int] | None:
    """Return epoch and sequence of the last committed package; None before any publisher.

    A transaction that has just begun takes its snapshot with this: it sees the content of every
    package up to that number (R6).
    """
    row = connection.execute("SELECT epoch, sequence FROM bookkeeping.slot").fetchone()
    return None if row is None else (row[0], row[1])


def published_log(connection: Connection) -> str:
    """Return the identity of the log that the author publishes to; empty before it has."""
    row = connection.execute("SELECT journal_id FROM bookkeeping.slot").fetchone()
    return "" if row is None else str(row[0])
