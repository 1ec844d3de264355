"""Transactions as the bookkeeper: ones of our own, and the caller's, left as they were found."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as, role_statement

Connect = Callable[[], AbstractContextManager[Connection]]
"""Lends a connection that nobody else uses, such as a pool's `connection`."""


@contextmanager
def bookkeeping(connection: Connection) -> Iterator[Connection]:
    """Give a transaction as the bookkeeper, over a connection that is in none."""
    with connection.transaction():
        act_as(connection, BOOKKEEPER)
        yield connection


@asynccontextmanager
async def as_bookkeeper(
    pool: AsyncConnectionPool[AsyncConnection],
) -> AsyncIterator[AsyncConnection]:
    """Give a transaction as the bookkeeper to a route, over a connection of its pool."""
    async with pool.connection() as connection:
        await connection.execute(role_statement(BOOKKEEPER))
        yield connection


@contextmanager
def writing(connect: Connect) -> Iterator[Connection]:
    """Give a transaction as the bookkeeper."""
    with connect() as connection, bookkeeping(connection):
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
