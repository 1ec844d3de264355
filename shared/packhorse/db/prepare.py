"""What every program does with its database before anything else."""

import logging
import uuid
from typing import Any

import psycopg

from packhorse.db.connect import AWAY, connect
from packhorse.db.engine import check_database_url
from packhorse.db.session import SessionConnection
from packhorse.db.version import HEAD, check_newer
from packhorse.errors import Permanent, Transient

logger = logging.getLogger(__name__)

_SCHEMA = "SELECT version_num, needs_program FROM packhorse_schema"


class DatabaseUnavailable(Transient):
    """The database can't be reached, or refuses this login; the text has its own words."""


class DatabaseUnusable(Permanent):
    """The database can't be used until somebody changes it, or the way to it."""


def prepare_database(
    url: str, application: str, *, setting: str = "PACKHORSE_DATABASE_URL"
) -> None:
    """Bring a database to the newest schema; one that a newer release has made is used as it is.

    `setting` is where its URL comes from, for the text of an error. Raises `DatabaseUnavailable`,
    and `DatabaseUnusable`, `SchemaTooNew` or `BadDatabaseUrl` for what waiting does not mend.
    """
    check_database_url(url)
    try:
        with connect(url, application, autocommit=True) as connection:
            require_sessions(connection, url)
            found = _schema(connection)
        _bring(url, application, *found)
    except psycopg.Error as error:
        raise _refusal(error, setting) from error


def require_database(url: str, application: str) -> None:
    """Return when a program that migrates nothing can use a database as it is.

    Raises as `prepare_database`, and `DatabaseUnusable` for one without the schema, or an older.
    """
    check_database_url(url)
    try:
        with connect(url, application, autocommit=True) as connection:
            require_sessions(connection, url)
            revision, needs_program = _schema(connection)
    except psycopg.errors.InsufficientPrivilege:
        return  # a login of its own that only has the roles: that is not known
    except psycopg.Error as error:
        raise _refusal(error, "its URL") from error
    if revision < HEAD:
        has = f"the schema {revision} of packhorse" if revision else "no schema of packhorse"
        raise DatabaseUnusable(
            f"the database has {has}, and this program needs {HEAD}: is it the right one? Start a "
            "program of packhorse of this release on it, such as packhorse-jobs, or call "
            "packhorse.db.prepare.prepare_database(url, name) with the login that owns it"
        )
    check_newer(revision, needs_program)


def require_sessions(connection: SessionConnection, url: str) -> None:
    """Raise `DatabaseUnusable` behind a pooler that gives one server session to several clients.

    Locks, settings, roles and notifications belong to a session. In PgBouncer's session mode they
    stay with the client; in its transaction and statement modes another client gets them.
    """
    if connection.info.backend_pid == connection.server_pid:
        return
    mark = uuid.uuid4().hex
    connection.execute("SELECT set_config('packhorse.session', %s, false)", (mark,))
    with connect(url, "packhorse-session-check") as other:
        shared = _mark(other) == mark  # and holds that session until it is closed
        if not shared and _mark(connection) == mark:
            return
    raise DatabaseUnusable(
        "the database is reached through a connection pooler that shares server sessions between "
        "clients; set its pool_mode to session for this database, or name the server itself"
    )


def _mark(connection: psycopg.Connection) -> str | None:
    row: Any = connection.execute("SELECT current_setting('packhorse.session', true)").fetchone()
    return row[0]  # type: ignore[no-any-return]


def _schema(connection: psycopg.Connection) -> tuple[str, str]:
    """Return the database's schema and the oldest that programs must know; empty for none."""
    try:
        row = connection.execute(_SCHEMA).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    return row or ("", "")


def _bring(url: str, application: str, revision: str, needs_program: str) -> None:
    if revision < HEAD:
        from packhorse.db.migrate import upgrade  # Alembic is loaded by those who need it

        upgrade(url, application)
    elif revision > HEAD:
        check_newer(revision, needs_program)
        logger.warning(
            "a newer release of packhorse has migrated the database to schema %s; this program "
            "knows %s and works with it",
            revision,
            HEAD,
        )


def _refusal(error: psycopg.Error, setting: str) -> Transient | Permanent:
    said = str(error).strip().split("\n", 1)[0]
    if isinstance(error, AWAY):
        return DatabaseUnavailable(
            f"the database can't be used: {said}; is it running, and does {setting} name a "
            "database that exists?"
        )
    return DatabaseUnusable(f"the database can't be brought to the newest schema: {said}")
