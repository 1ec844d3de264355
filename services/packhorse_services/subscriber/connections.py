"""The subscriber's sessions on its database, named so that a takeover finds them."""

from dataclasses import dataclass

from psycopg import Connection, sql

from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.metadata import BOOKKEEPER
from packhorse_services.subscriber.lease import LANE_SESSIONS

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Connections:
    """Opens sessions for one worker; all are in autocommit."""

    url: str
    instance: str
    statement_ms: int = 15 * _MINUTE_MS
    lock_ms: int = 10_000
    idle_in_transaction_ms: int = 30_000

    def lease(self, application: str) -> Connection:
        """Open a session for the lease; nothing in it may last long."""
        timeouts = Timeouts(statement_ms=5_000, lock_ms=5_000, idle_in_transaction_ms=5_000)
        return connect(self.url, application, timeouts=timeouts, autocommit=True)

    def lane(self) -> Connection:
        """Open a session for imports, which acts as the bookkeeper until told otherwise.

        A worker that is paused in a transaction loses it after `idle_in_transaction_ms`.
        """
        timeouts = Timeouts(self.statement_ms, self.lock_ms, self.idle_in_transaction_ms)
        return self._as_bookkeeper(LANE_SESSIONS + self.instance, timeouts)

    def bookkeeper(self) -> Connection:
        """Open a session for statuses and commands."""
        return self._as_bookkeeper("packhorse-subscriber", Timeouts())

    def _as_bookkeeper(self, application: str, timeouts: Timeouts) -> Connection:
        connection = connect(self.url, application, timeouts=timeouts, autocommit=True)
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(BOOKKEEPER)))
        return connection
