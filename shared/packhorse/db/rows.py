"""What is read alike in many places: a large result in constant memory, and the time."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, LiteralString, TypeVar

from psycopg import Connection, sql

T = TypeVar("T")

_UNHEARD_S = 1.0
_cursor_numbers = count()


def stream_rows(
    connection: Connection,
    query: LiteralString | sql.Composable,
    parameters: Sequence[Any] | Mapping[str, Any] = (),
    *,
    fetch: int,
) -> Iterator[tuple[Any, ...]]:
    """Yield what `query` finds, `fetch` rows at a time, inside the caller's transaction.

    The server's cursor ends with the transaction. An iterator that is abandoned says nothing to
    the server: the garbage collector ends it, maybe in the middle of another statement of the
    same connection and in a later transaction, which a CLOSE would abort.
    """
    name = sql.Identifier(f"packhorse_{next(_cursor_numbers)}")
    selected = query if isinstance(query, sql.Composable) else sql.SQL(query)
    declare = sql.SQL("DECLARE {} NO SCROLL CURSOR FOR {}").format(name, selected)
    connection.execute(declare, parameters, prepare=False)
    following = sql.SQL("FETCH FORWARD {} FROM {}").format(sql.Literal(fetch), name)
    while rows := connection.execute(following, prepare=False).fetchall():
        yield from rows
    connection.execute(sql.SQL("CLOSE {}").format(name), prepare=False)


def not_idle(
    connection: Connection, items: Iterable[T], *, clock: Callable[[], float] = time.monotonic
) -> Iterator[T]:
    """Yield items, of which the reader may take long or pass over any number.

    The server is told every second that the transaction is at work, lest its time limit end it.
    """
    told = clock()
    for item in items:
        if clock() - told >= _UNHEARD_S:
            connection.execute("SELECT 1")
            told = clock()
        yield item


def now_ms(connection: Connection) -> int:
    """Return the database's time, in milliseconds since 1970."""
    [(moment,)] = connection.execute(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()
    return int(moment)
