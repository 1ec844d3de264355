"""Bodies in the blob store: the publisher notes them, the cleanup removes them, marks read them.

A package has an offset once the publisher, or the cleanup, knows where the log has it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from psycopg import Connection

from packhorse.db.rows import stream_rows

_FETCH = 2_000


class NewStoredPackage(NamedTuple):
    """A body that a package of the outbox refers to, and that the blob store has."""

    key: str
    package_id: str
    length: int
    sha256: str


class StoredPackage(NamedTuple):
    """A package in the blob store, and where the log has it."""

    key: str
    length: int
    log_offset: int


def add(connection: Connection, packages: Sequence[NewStoredPackage]) -> None:
    """Note bodies in the transaction that commits their outbox rows (R21); no offset is known.

    There is at least one.
    """
    connection.execute(
        "INSERT INTO bookkeeping.stored_package (key, package_id, length, sha256) "
        "SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])",
        [list(column) for column in zip(*packages, strict=True)],
    )


def keys(connection: Connection) -> Iterator[str]:
    """Yield the keys of all stored packages, in constant memory and no order."""
    query = "SELECT key FROM bookkeeping.stored_package"
    for (key,) in stream_rows(connection, query, fetch=_FETCH):
        yield key


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


def stamp(connection: Connection, among: Sequence[str], offset: int) -> None:
    """Give `offset` to those of the packages, by their keys, that still have none."""
    connection.execute(
        "UPDATE bookkeeping.stored_package SET log_offset = %s "
        "WHERE key = ANY(%s) AND log_offset IS NULL",
        (offset, list(among)),
    )


def below(connection: Connection, oldest: int, limit: int) -> list[StoredPackage]:
    """Return packages whose offset the log has forgotten, the longest forgotten first."""
    rows = connection.execute(
        "SELECT key, length, log_offset FROM bookkeeping.stored_package "
        "WHERE log_offset < %s ORDER BY log_offset, key LIMIT %s",
        (oldest, limit),
    ).fetchall()
    return [StoredPackage(*row) for row in rows]


def known(connection: Connection, among: Sequence[str]) -> set[str]:
    """Return those of the keys that a stored package stands for."""
    rows = connection.execute(
        "SELECT key FROM bookkeeping.stored_package WHERE key = ANY(%s)", (list(among),)
    ).fetchall()
    return {key for (key,) in rows}


def place(connection: Connection, offsets: Mapping[str, int]) -> None:
    """Note where the log was seen to have packages, by their keys."""
    connection.execute(
        "UPDATE bookkeeping.stored_package AS stored SET log_offset = found.log_offset "
        "FROM unnest(%s::text[], %s::bigint[]) AS found (key, log_offset) "
        "WHERE stored.key = found.key",
        (list(offsets), list(offsets.values())),
    )


def forget(connection: Connection, removed: Collection[str]) -> None:
    """Remove the rows of packages whose blobs are gone."""
    connection.execute(
        "DELETE FROM bookkeeping.stored_package WHERE key = ANY(%s)", (list(removed),)
    )


def count_kept(connection: Connection) -> dict[str, int]:
    """Return how many packages stay, by why."""
    [(pending, in_log)] = connection.execute(
        "SELECT count(*) FILTER (WHERE log_offset IS NULL), "
        "count(*) FILTER (WHERE log_offset IS NOT NULL) FROM bookkeeping.stored_package"
    ).fetchall()
    return {"pending": pending, "in_log": in_log}
