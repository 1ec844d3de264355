"""Snapshots of deduplication in the author's database, kept by the bookkeeper (seed 004)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.errors import Transient
from packhorse.messaging.deduplication import DeduplicationState, ProducerState, Snapshot


class SnapshotsUnavailable(Transient):
    """The author's database is away, or nobody knows whether it took the snapshot."""


class DatabaseSnapshots:
    """A `SnapshotStore`: one row an owner, written whole; time is the database's (R28)."""

    def __init__(self, pool: ConnectionPool[Connection]) -> None:
        self._pool = pool

    def load(self, name: str) -> Snapshot | None:
        """Return the owner's snapshot. Raises `SnapshotsUnavailable`."""
        with self._bookkeeping() as connection:
            row: Any = connection.execute(
                "SELECT journal_id, position, producers FROM bookkeeping.deduplication_snapshot "
                "WHERE topic = %s",
                (name,),
            ).fetchone()
        return None if row is None else Snapshot(row[0], row[1], _state(row[2]))

    def save(self, name: str, snapshot: Snapshot) -> None:
        """Keep the snapshot, unless one of the same journal is there that reaches further.

        Raises `SnapshotsUnavailable`: then either the old one or this one is kept.
        """
        with self._bookkeeping() as connection:
            connection.execute(
                """
                INSERT INTO bookkeeping.deduplication_snapshot AS kept
                    (topic, journal_id, position, producers) VALUES (%s, %s, %s, %s)
                ON CONFLICT (topic) DO UPDATE SET journal_id = excluded.journal_id,
                    position = excluded.position, producers = excluded.producers,
                    taken_at = now()
                WHERE kept.journal_id <> excluded.journal_id OR kept.position <= excluded.position
                """,
                (name, snapshot.journal_id, snapshot.position, Jsonb(_document(snapshot.state))),
            )

    def now_ms(self) -> int:
        """Return the database's clock. Raises `SnapshotsUnavailable`."""
        with self._bookkeeping() as connection:
            row: Any = connection.execute(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            ).fetchone()
        return int(row[0])

    @contextmanager
    def _bookkeeping(self) -> Iterator[Connection]:
        try:
            with self._pool.connection() as connection:
                act_as(connection, BOOKKEEPER)
                yield connection
        except psycopg.Error as error:
            raise SnapshotsUnavailable(f"the author's database says: {error}") from error


def _document(state: DeduplicationState) -> dict[str, Any]:
    """Return what the column holds: the floor, and epoch, sequence and last use of each name."""
    known = {
        name: [kept.epoch, kept.sequence, kept.used_ms] for name, kept in state.producers.items()
    }
    return {"floor": state.floor, "known": known}


def _state(document: dict[str, Any]) -> DeduplicationState:
    known = {name: ProducerState(*numbers) for name, numbers in document["known"].items()}
    return DeduplicationState(known, document["floor"])
