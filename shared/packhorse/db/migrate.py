"""Bring a database to the newest schema."""

import logging
import time

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.version import HEAD, VERSION_TABLE

logger = logging.getLogger(__name__)

_LOCK = 0x7061636B  # "pack": two programs that start at once must not both migrate
_UNHURRIED = Timeouts(statement_ms=0, lock_ms=0, idle_in_transaction_ms=60_000)
"""A migration takes as long as it takes; a process that is paused in one ends no other's start."""
_TABLE_WAIT = "SET LOCAL lock_timeout = '2s'"
"""Behind a change that waits for a table, all wait who want to read it."""
_PAUSE_S = 5.0
_FIRST = "0001"
"""What programs have to know where no migration has taken anything away."""

_TABLE = f"""
CREATE TABLE {VERSION_TABLE} (
    version_num varchar(32) PRIMARY KEY,
    needs_program varchar(32) NOT NULL DEFAULT '{_FIRST}'
)
"""


def open_engine(url: str, application: str) -> Engine:
    """Return Alembic's engine: connections like all others, but statements have no time limits."""
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(url, application, timeouts=_UNHURRIED),
        poolclass=NullPool,
    )


def upgrade(url: str, application: str) -> None:
    """Migrate to the newest schema; a database that is there already, or beyond, stays as it is.

    Tables that somebody holds for long stay open to others meanwhile. Raises `psycopg.Error`.
    """
    try:
        with open_engine(url, application).begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            while _schema(connection) < HEAD and not _upgraded(connection):
                logger.warning("the migration waits for a transaction that holds a table")
                time.sleep(_PAUSE_S)
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise error.orig from error
        raise


def _upgraded(connection: Connection) -> bool:
    """Return false, and leave everything as it was, where a table can't be had soon."""
    config = _config(connection)
    try:
        with connection.begin_nested():
            connection.execute(text(_TABLE_WAIT))
            command.upgrade(config, "head")
            _publish(connection, ScriptDirectory.from_config(config))
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.errors.LockNotAvailable):
            return False
        raise
    return True


def _schema(connection: Connection) -> str:
    """Return the database's schema, empty for a new one."""
    if not connection.scalar(text(f"SELECT to_regclass('{VERSION_TABLE}')")):
        connection.execute(text(_TABLE))
    return connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) or ""  # noqa: S608


def _publish(connection: Connection, scripts: ScriptDirectory) -> None:
    """Store which other programs can use the database."""
    needs = max(
        getattr(script.module, "needs_program", _FIRST) for script in scripts.walk_revisions()
    )
    connection.execute(
        text(f"UPDATE {VERSION_TABLE} SET needs_program = :needs"),  # noqa: S608
        {"needs": needs},
    )


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "packhorse.db:migrations")
    config.attributes["connection"] = connection
    return config
