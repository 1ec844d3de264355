"""Stored packages as the publisher has noted them; all in the caller's transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from psycopg import Connection


class StoredPackage(NamedTuple):
    """A package in the blob store, and where the log has it."""

    key: str
    length: int
    log_offset: int


def forget_offsets(connection: Connection) -> None:
    """Drop all offsets: they speak of another journal than the one there is now (R24)."""
    connection.execute("UPDATE bookkeeping.stored_package SET log_offset = NULL")


def unplaced(connection: Connection, limit: int) -> list[str]:
    """Return the keys of packages without an offset that are not on their way to the journal."""
    rows = connection.execute(
        """
        SELECT key FROM bookkeeping.stored_package AS stored
        WHERE log_offset IS NULL AND NOT EXISTS (
            SELECT FROM bookkeeping.outbox
            WHERE outbox.package_id = stored.package_id AND outbox.log_offset IS NULL)
        ORDER BY key LIMIT %s
        """,
        (limit,),
    ).fetchall()
    return [key for (key,) in rows]


def stamp(connection: Connection, keys: Sequence[str], offset: int) -> None:
    """Give `offset` to those of the packages that still have none."""
    connection.execute(
        "UPDATE bookkeeping.stored_package SET log_offset = %s "
        "WHERE key = ANY(%s) AND log_offset IS NULL",
        (offset, list(keys)),
    )


def below(connection: Connection, oldest: int, limit: int) -> list[StoredPackage]:
    """Return packages whose offset the log has forgotten, the longest forgotten first."""
    rows = connection.execute(
        "SELECT key, length, log_offset FROM bookkeeping.stored_package "
        "WHERE log_offset < %s ORDER BY log_offset, key LIMIT %s",
        (oldest, limit),
    ).fetchall()
    return [StoredPackage(*row) for row in rows]


def known(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Return those of the keys that a stored package stands for."""
    rows = connection.execute(
        "SELECT key FROM bookkeeping.stored_package WHERE key = ANY(%s)", (list(keys),)
    ).fetchall()
    return {key for (key,) in rows}


def place(connection: Connection, offsets: Mapping[str, int]) -> None:
    """Note where the log was seen to have packages, by their keys."""
    connection.cursor().executemany(
        "UPDATE bookkeeping.stored_package SET log_offset = %s WHERE key = %s",
        [(offset, key) for key, offset in offsets.items()],
    )


def forget(connection: Connection, keys: Collection[str]) -> None:
    """Remove the rows of packages whose blobs are gone."""
    connection.execute("DELETE FROM bookkeeping.stored_package WHERE key = ANY(%s)", (list(keys),))


def count_kept(connection: Connection) -> dict[str, int]:
    """Return how many packages stay, by why."""
    [(pending, in_log)] = connection.execute(
        "SELECT count(*) FILTER (WHERE log_offset IS NULL), "
        "count(*) FILTER (WHERE log_offset IS NOT NULL) FROM bookkeeping.stored_package"
    ).fetchall()
    return {"pending": pending, "in_log": in_log}
