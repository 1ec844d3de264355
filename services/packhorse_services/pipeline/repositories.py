"""Reading a repository from several tasks at once, as it is in one moment, without locks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel, sql

from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse_services.pipeline.databases import (
    AUTHOR,
    AUTHOR_SETTING,
    SUBSCRIBERS_SETTING,
    advised,
    require_url,
    unusable,
)

_APPLICATION = "packhorse-pipeline"
_UNHURRIED = Timeouts(statement_ms=0, lock_ms=10_000, idle_in_transaction_ms=0)


@contextmanager
def reading(database_url: str, name: str, snapshot: str = "") -> Iterator[psycopg.Connection]:
    """Give a transaction that reads one state of a database and locks nothing that others want.

    With `snapshot`, the state that another transaction has exported. Raises `TaskFailed`, which
    names the database by `name`, and `TaskRefused` for a URL that is not that of a database.
    """
    setting = AUTHOR_SETTING if name == AUTHOR else SUBSCRIBERS_SETTING
    require_url(database_url, setting, name)
    try:
        connection = connect(database_url, _APPLICATION, timeouts=_UNHURRIED)
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection:
            if snapshot:
                connection.execute(
                    sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot))
                )
            yield connection
    except psycopg.Error as error:
        what = f"the database of {name} can't be read"
        raise unusable(advised(what, error, setting), error) from error


def export_snapshot(connection: psycopg.Connection) -> str:
    """Return the id of what this transaction sees, for others while it lasts."""
    row: Any = connection.execute("SELECT pg_export_snapshot()").fetchone()
    return str(row[0])
