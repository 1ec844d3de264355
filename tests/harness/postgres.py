"""A real PostgreSQL for the tests, and a fresh, migrated database for each that asks."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from packhorse.db.migrate import upgrade
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.borrowing import borrowed, close_kept
from tests.harness.scratch import is_on_memory
from tests.harness.waiting import eventually

_TEMPLATE = "template_packhorse"
_CHEAP = {
    "max_wal_size": "512MB",
    "scram_iterations": "1",
    # Each worker keeps dozens of databases, most of them idle: a worker process for each a minute.
    "autovacuum_naptime": "1h",
    "bgwriter_delay": "10s",
}


@contextmanager
def running_postgres() -> Iterator[EmbeddedPostgres]:
    """Start a server with a migrated template database; end and remove it afterwards."""
    home = Path(tempfile.mkdtemp(prefix="packhorse-test-pg-"))
    home.chmod(0o711)
    server = EmbeddedPostgres(home)
    try:
        server.start()
        _make_cheap(server)
        upgrade(server.ensure_database(_TEMPLATE), "tests")
        yield server
    finally:
        server.stop("immediate")
        # A worker has made hundreds of databases by then: nobody waits minutes for their files.
        os.spawnlp(os.P_NOWAIT, "rm", "rm", "-rf", str(home))


def _make_cheap(server: EmbeddedPostgres) -> None:
    """Hash passwords once, not 4,096 times; keep little of the WAL; leave tables as they are."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for name, value in _CHEAP.items():
            setting = sql.SQL("ALTER SYSTEM SET {} = {}")
            connection.execute(setting.format(sql.Identifier(name), sql.Literal(value)))
        connection.execute("SET scram_iterations = 1")
        change = sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}")
        connection.execute(change.format(sql.Literal(server.password)))
        connection.execute("SELECT pg_reload_conf()")


def end_sessions(
    connection: psycopg.Connection, application: str = "%", database: str | None = None
) -> None:
    """End the other sessions of a database, the connection's own if none is named, and wait.

    `application` is a pattern for LIKE.
    """
    ended = connection.execute(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "coalesce(%s, current_database()) AND application_name LIKE %s AND pid <> pg_backend_pid()",
        (database, application),
    ).fetchall()

    def are_gone() -> bool:
        connection.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees one state of it
        there = "SELECT FROM pg_stat_activity WHERE pid = ANY(%s)"
        return connection.execute(there, ([pid for pid, _ in ended],)).fetchone() is None

    if ended:
        eventually(are_gone, "the sessions have ended", interval=0.005)


def waiting_for_locks(url: str, application: str = "%") -> list[int]:
    """Return the server processes of a database that wait for a lock, the newest session first.

    `application` is a pattern for LIKE.
    """
    with borrowed(url) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND application_name LIKE %s ORDER BY backend_start DESC",
            (application,),
        )
        return [pid for (pid,) in found.fetchall()]


class Databases:
    """Hands out databases, each a copy of the migrated template."""

    _numbers = itertools.count()

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self._made: list[str] = []
        on_memory = is_on_memory(server.home)
        self._strategy, self._drops = ("FILE_COPY", True) if on_memory else ("WAL_LOG", False)

    def new(self, prefix: str = "db") -> str:
        """Return the URL of a new database."""
        return self.copy(_TEMPLATE, prefix)

    def copy(self, source: str, prefix: str = "copy") -> str:
        """Return the URL of a copy of `source`, a name or a URL; nobody may be connected to it."""
        source = urlsplit(source).path.removeprefix("/")
        close_kept(source)
        name = f"{prefix}_{next(self._numbers)}"
        self._administer(f'CREATE DATABASE "{name}" TEMPLATE "{source}" STRATEGY {self._strategy}')
        self._made.append(name)
        return self.server.url(name)

    def drop(self) -> None:
        """Drop what was handed out, where that frees memory; on a disk it costs more than it frees.

        Whoever is still connected loses the connection.
        """
        if self._drops and self._made:
            for name in self._made:
                close_kept(name)
                self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _administer(self, statement: str) -> None:
        """Execute a statement; the server waits for sessions that end, but not for long."""

        def is_done() -> bool:
            try:
                connection.execute(statement.encode())
            except psycopg.errors.ObjectInUse as error:
                raise AssertionError(error) from error
            return True

        with borrowed(self.server.url()) as connection:
            connection.autocommit = True
            eventually(is_done, "no session is in the way")
            connection.autocommit = False
