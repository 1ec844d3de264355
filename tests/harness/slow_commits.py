"""A SQL journal whose commits wait at a gate: an append that is under way for as long as wanted."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.harness.waiting import eventually

_GATE = 0x67617465  # "gate"
_AT_COMMIT = """
    CREATE FUNCTION journal.wait_at_gate() RETURNS trigger LANGUAGE plpgsql
    SET lock_timeout = 0 AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(%s); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER gate AFTER UPDATE OF next ON journal.partition
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal.wait_at_gate()
"""


class Gate:
    """Closed: commits that append wait at it. `open` lets them through."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def wait_for(self, sessions: int) -> None:
        """Wait until so many sessions of the journal wait: at the gate, or for one that does."""
        eventually(lambda: self._waiting() >= sessions, f"{sessions} sessions at the gate")

    def open(self) -> None:
        """Let all commits through."""
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (_GATE,))

    def _waiting(self) -> int:
        row = self._connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def closed_gate(journal_url: str) -> Iterator[Gate]:
    """Put a gate before the commits of a SQL journal."""
    with psycopg.connect(journal_url, autocommit=True) as connection:
        connection.execute(_AT_COMMIT.replace("%s", str(_GATE)).encode())
        connection.execute("SELECT pg_advisory_lock(%s)", (_GATE,))
        yield Gate(connection)
