"""The number that the author has given to its last package, for who compares snapshots with it."""

from psycopg import Connection


def last_number(connection: Connection) -> tuple[int, int] | None:
    """Return epoch and sequence of the last committed package; None before any publisher.

    A transaction that has just begun takes its snapshot with this: it sees the content of every
    package up to that number (R6).
    """
    row = connection.execute("SELECT epoch, sequence FROM bookkeeping.slot").fetchone()
    return None if row is None else (row[0], row[1])
