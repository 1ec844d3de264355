"""The right to clean up: of all instances one at a time, and never one that was replaced.

A session lock of Postgres says whose turn it is; it ends with the session, and the session ends
when its holder is silent for too long. An epoch, raised at each turn and checked in every
transaction, fences a holder that was paused (C2). A turn of the service also needs the duty: its
token is checked in every transaction too, and the session ends when the instance is declared dead.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.errors import Transient
from packhorse.topology.leader import NotLeader, Token, end_session_with

_LOCK = 0x636C6E70  # "clnp"
_IDLE = "5min"
_PATIENCE = "3s"


class CleanupBusy(Transient):
    """Another instance is cleaning up; wait for it to end."""


class TurnLost(Transient):
    """Another instance has taken over since; nothing more is removed by this one."""


@dataclass(frozen=True)
class Turn:
    """One instance's turn; `connection` holds the lock."""

    connection: Connection
    epoch: int
    token: Token | None = None
    """The duty under which it is done; None by hand."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a transaction as the bookkeeper that commits only in this turn.

        Raises `TurnLost`, or `psycopg.Error` when the session has ended.
        """
        with self.connection.transaction():
            act_as(self.connection, BOOKKEEPER)
            held = self.connection.execute(
                "SELECT FROM bookkeeping.cleanup WHERE epoch = %s FOR UPDATE", (self.epoch,)
            )
            if held.fetchone() is None:
                raise TurnLost("another cleanup has begun; this one ends")
            self._check_duty()
            yield self.connection

    def check(self) -> None:
        """Raise unless this is still the turn; also tells Postgres that its holder lives."""
        with self.transaction():
            pass

    def _check_duty(self) -> None:
        try:
            if self.token is not None:
                self.token.check(self.connection)
        except NotLeader as error:
            raise TurnLost("another instance has the duty; this cleanup ends") from error


@contextmanager
def take_turn(database_url: str, token: Token | None = None) -> Iterator[Turn]:
    """Clean up alone, under a duty or by hand. Raises `CleanupBusy` when somebody else does.

    A run that has just died may hold the lock until Postgres has noticed, so that is waited for.
    """
    with closing(connect(database_url, "cleanup", autocommit=True)) as connection:
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (_PATIENCE,))
        if token is not None:
            end_session_with(connection, token.runtime_id)
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        except psycopg.errors.LockNotAvailable as error:
            raise CleanupBusy("another instance is cleaning up; wait for it to end") from error
        connection.execute("SELECT set_config('idle_session_timeout', %s, false)", (_IDLE,))
        with connection.transaction():
            act_as(connection, BOOKKEEPER)
            [(epoch,)] = connection.execute(
                "UPDATE bookkeeping.cleanup SET epoch = epoch + 1 RETURNING epoch"
            ).fetchall()
        yield Turn(connection, epoch, token)
