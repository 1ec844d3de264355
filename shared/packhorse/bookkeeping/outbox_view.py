"""The publisher's outbox as others may read it: what is committed and not known to be sent."""

from collections.abc import Iterator

from psycopg import Connection

from packhorse.db.rows import stream_rows

_FETCH = 2_000


def waiting(connection: Connection) -> Iterator[bytes]:
    """Yield the messages of packages without an offset, as `decode_stored_package` reads them."""
    query = "SELECT value FROM bookkeeping.outbox WHERE log_offset IS NULL"
    for (value,) in stream_rows(connection, query, fetch=_FETCH):
        yield value
