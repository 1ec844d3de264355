"""Several statements in one exchange with the server, which costs more than most of them."""

from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import ClientCursor, Connection, sql

Statement = tuple[LiteralString | sql.Composed, Sequence[Any]]
"""A statement, and its parameters as `Connection.execute` takes them."""


def exchange(connection: Connection, statements: Sequence[Statement]) -> list[list[Any]]:
    """Carry out statements one after the other; returns the rows of each, or none.

    Those behind one that fails are not carried out. Outside of a transaction, and unless one of
    them begins it, they are one transaction. None is prepared: each is planned every time.
    """
    cursor = ClientCursor(connection)
    together = ";".join(cursor.mogrify(*statement) for statement in statements)
    cursor.execute(together.encode())
    found: list[list[Any]] = []
    for result in cursor.results():
        found.append(result.fetchall() if result.description else [])
    return found
