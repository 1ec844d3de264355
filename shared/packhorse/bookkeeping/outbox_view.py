"""What others ask of publishing: what waits in the outbox, the last number, and which log it is."""

from collections.abc import Iterator

from psycopg import Connection

from packhorse.db.rows import stream_rows

_FETCH = 2_000


def waiting(connection: Connection) -> Iterator[bytes]:
    """Yield the messages of packages without an offset, as `decode_stored_package` reads them."""
    query = "SELECT value FROM bookkeeping.outbox WHERE log_offset IS NULL"
    for (value,) in stream_rows(connection, query, fetch=_FETCH):
        yield value


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
