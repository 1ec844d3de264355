"""A real PostgreSQL for the tests, and a fresh, migrated database for each that asks."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from packhorse.db.migrate import upgrade
from packhorse_services.cli.stack.embedded import EmbeddedPostgres

_TEMPLATE = "template_packhorse"


@contextmanager
def running_postgres() -> Iterator[EmbeddedPostgres]:
    """Start a server with a migrated template database; end and remove it afterwards."""
    home = Path(tempfile.mkdtemp(prefix="packhorse-test-pg-"))
    home.chmod(0o711)
    server = EmbeddedPostgres(home)
    try:
        server.start()
        upgrade(server.ensure_database(_TEMPLATE), "tests")
        yield server
    finally:
        server.stop("immediate")
        # A worker has made hundreds of databases by then: nobody waits minutes for their files.
        os.spawnlp(os.P_NOWAIT, "rm", "rm", "-rf", str(home))


class Databases:
    """Hands out databases, each a copy of the migrated template."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self._numbers = itertools.count()

    def new(self, prefix: str = "db") -> str:
        """Return the URL of a new database."""
        return self.copy(_TEMPLATE, prefix)

    def copy(self, source: str, prefix: str = "copy") -> str:
        """Return the URL of a copy of `source`, which nobody may be connected to."""
        name = f"{prefix}_{next(self._numbers)}"
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        return self.server.url(name)
