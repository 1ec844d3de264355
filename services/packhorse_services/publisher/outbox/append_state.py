"""The lock's row: who this author is to the journal, its last number, what is accounted for.

All of it runs in the caller's transaction, as the bookkeeper.
"""

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from packhorse.errors import Transient

Number = tuple[int, int]
"""Epoch and sequence, which order the packages of one producer (R27)."""


class AppendLockLost(Transient):
    """Somebody else has published since this transaction began; nothing was committed."""


@dataclass(frozen=True, slots=True)
class AppendState:
    """Who this author is to the journal, how far its numbers have come, what is still to send."""

    producer: str
    epoch: int
    sequence: int
    settled_offset: int
    """Every package of this producer at or below this offset is accounted for."""
    journal_id: str
    unconfirmed: int
    oldest_age_s: float

    @property
    def last(self) -> Number:
        """The number given last."""
        return self.epoch, self.sequence


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """What is not known to be in the journal."""

    unconfirmed: int
    oldest_age_s: float


def unconfirmed(connection: Connection) -> Unconfirmed:
    """Return what waits, also when nobody has published yet."""
    row: Any = connection.execute(
        "SELECT count(*), "
        "coalesce(extract(epoch FROM clock_timestamp() - min(accepted_at))::float8, 0) "
        "FROM bookkeeping.outbox WHERE log_offset IS NULL"
    ).fetchone()
    return Unconfirmed(*row)


def ensure_state(connection: Connection) -> None:
    """Make the lock's row, and with it the producer's name, when the author has none yet."""
    connection.execute("INSERT INTO bookkeeping.slot DEFAULT VALUES ON CONFLICT DO NOTHING")


READ = """
    SELECT producer::text, epoch, sequence, settled_offset, journal_id, unconfirmed.count,
        coalesce(extract(epoch FROM clock_timestamp() - unconfirmed.oldest)::float8, 0)
    FROM bookkeeping.slot,
        (SELECT count(*), min(accepted_at) AS oldest
         FROM bookkeeping.outbox WHERE log_offset IS NULL) AS unconfirmed
"""
"""The statement whose row are the fields of an `AppendState`."""


def read_state(connection: Connection) -> AppendState:
    """Return the lock's state as the transaction sees it."""
    row: Any = connection.execute(READ).fetchone()
    return AppendState(*row)


def advance(connection: Connection, state: AppendState, count: int) -> None:
    """Take the next `count` numbers. Raises `AppendLockLost` when they are somebody else's."""
    moved = connection.execute(
        "UPDATE bookkeeping.slot SET sequence = sequence + %s WHERE epoch = %s AND sequence = %s",
        (count, state.epoch, state.sequence),
    )
    if moved.rowcount != 1:
        raise AppendLockLost("another publisher has the append lock; try again")


def adopt_journal(connection: Connection, journal_id: str) -> None:
    """Note that this is another log than before: nothing of this producer is known to be in it."""
    connection.execute(
        "UPDATE bookkeeping.slot SET journal_id = %s, settled_offset = -1, "
        "generation = generation + 1",
        (journal_id,),
    )


def mark_reconciled(connection: Connection, offset: int) -> None:
    """Note that everything of this producer up to `offset` is accounted for."""
    connection.execute("UPDATE bookkeeping.slot SET settled_offset = %s", (offset,))


def raise_epoch(connection: Connection, above: int) -> None:
    """Begin an epoch that nobody has used: the numbers of `above` and below are taken."""
    connection.execute("UPDATE bookkeeping.slot SET epoch = greatest(epoch, %s) + 1", (above,))


def rename_producer(connection: Connection) -> None:
    """Take a name that nobody has used, as long as no number was given under the present one."""
    connection.execute(
        "UPDATE bookkeeping.slot SET producer = gen_random_uuid() WHERE sequence = 0"
    )
