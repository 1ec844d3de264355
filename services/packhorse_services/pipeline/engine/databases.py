"""The databases that tasks read: opened without locks, and what one says that cannot be used."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel, errors, sql
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from packhorse.db.connect import connect
from packhorse.db.engine import BadDatabaseUrl, Timeouts, check_database_url
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused

AUTHOR = "the author"
"""What the author's database is called where subscribers' have their names."""

MOST_CONNECTIONS = 16
"""So many tasks of an audit or a mark read one database at a time, each over a connection."""

AUTHOR_SETTING = "PACKHORSE_DATABASE_URL"
JOURNAL_SETTING = "PACKHORSE_JOURNAL_URL"
SUBSCRIBERS_SETTING = "PACKHORSE_SUBSCRIBER_DATABASES"

_BY_SQLALCHEMY = "(psycopg.OperationalError) "
_BY_THE_JOURNAL = "the journal's database says: "
_AGAIN = re.compile(r"; (?:try|poll) again(?: later)?$")
"""What the journal advises, which `journal_away` says once, and better."""
_NOT_THERE = re.compile(r'\b(?:(?:database|relation) ".*"|role "packhorse_\w+") does not exist')
_FOR_SOMEBODY = (
    errors.InsufficientPrivilege,
    errors.InvalidSchemaName,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
)
"""What stays so until somebody changes it; not all of its kind: a snapshot that ended is, too."""


def first_line(said: object) -> str:
    """Return what a database says, without the same again for each address that was tried."""
    line = " ".join(str(said).strip().partition("\n")[0].split())
    return line.removeprefix(_BY_SQLALCHEMY).removeprefix(_BY_THE_JOURNAL)


def is_misnamed(said: object) -> bool:
    """Return whether a URL names no database of ours, or none at all; no later try helps."""
    return _NOT_THERE.search(first_line(said)) is not None


def unusable(text: str, said: object) -> TaskFailed | TaskRefused:
    """Return the error with `text` for a database that can't be used, and says why."""
    refused = is_misnamed(said) or isinstance(said, _FOR_SOMEBODY)
    return TaskRefused(text) if refused else TaskFailed(text)


def advised(what: str, said: object, setting: str) -> str:
    """Return `what` is the matter, what the database says of it, and what to do."""
    reported = f"{what}: {first_line(said)}; look at {setting}"
    if isinstance(said, errors.InsufficientPrivilege):
        return f"{reported}: its user lacks a right; use the one that the services have there"
    return f"{reported}, and run it again"


def require_url(url: str, setting: str, name: str = AUTHOR) -> None:
    """Raise `TaskRefused` for what can't be the URL of `name`'s database; quotes nothing of it."""
    try:
        check_database_url(url)
    except BadDatabaseUrl as error:
        raise TaskRefused(
            f"that is no URL of the database of {name} ({setting}): {error}"
        ) from None


def author_away(said: object) -> str:
    """Return that the author's database can't be used, and what to do."""
    return advised("the author's database can't be used", said, AUTHOR_SETTING)


def no_topic(said: object, whose: str) -> str:
    """Return that a topic is not there, and why: the journal's URL may be that of something else.

    `whose` is what the database of the URL is, where that is known; "" elsewhere. A topic that
    was there, or that lacks a partition, is reported in the journal's words.
    """
    line = first_line(said)
    found = line.partition(";")[0]
    if not found.endswith("does not exist"):
        return line
    named = f" ({JOURNAL_SETTING} names {whose})" if whose else ""
    return (
        f"{found}{named}; set {JOURNAL_SETTING} to the journal that the publishers use, and "
        "PACKHORSE_TOPIC_… as they have it; only a new journal needs packhorse topics create"
    )


def is_same(url: str, other: str) -> bool:
    """Return whether two URLs name one database; not so of what is no database's URL."""
    try:
        found = [make_url(one) for one in (url, other)]
    except (ArgumentError, ValueError):  # ValueError: several brokers, each with a port
        return False
    first, second = ((one.host, one.port or 5432, one.database) for one in found)
    return first == second


def journal_away(said: object) -> str:
    """Return that the journal can't be used, and what to do."""
    return advised("the journal can't be used", _AGAIN.sub("", first_line(said)), JOURNAL_SETTING)


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
