"""Whose transaction it is: one of our own, or the caller's, which we leave as we found it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from psycopg import Connection
from psycopg.rows import tuple_row

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as

Connect = Callable[[], AbstractContextManager[Connection]]
"""Lends a connection that nobody else uses, such as a pool's `connection`."""


@contextmanager
def writing(connect: Connect) -> Iterator[Connection]:
    """Give a transaction as the bookkeeper."""
    with connect() as connection, connection.transaction():
        act_as(connection, BOOKKEEPER)
        yield connection


@contextmanager
def reading(connect: Connect) -> Iterator[Connection]:
    """Give a transaction as the bookkeeper that only reads, and sees one moment."""
    with connect() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        act_as(connection, BOOKKEEPER)
        yield connection


@contextmanager
def within(connection: Connection) -> Iterator[Connection]:
    """Work as the bookkeeper in the caller's transaction; what fails leaves it as it was.

    Its role and its kind of rows are the caller's own again afterwards. A connection in autocommit
    that is in no transaction gets one for this alone.
    """
    kind, connection.row_factory = connection.row_factory, tuple_row
    try:
        # A statement before `transaction`: it begins the caller's transaction where none has begun
        # yet, so that the next line makes a savepoint in it, and does not commit it.
        role = connection.execute("SELECT current_setting('role')").fetchone()
        with connection.transaction():
            act_as(connection, BOOKKEEPER)
            yield connection
            connection.execute("SELECT set_config('role', %s, true)", role)
    finally:
        connection.row_factory = kind
