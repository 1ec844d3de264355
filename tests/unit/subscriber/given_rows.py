"""A connection without a database: it gives rows and notes what is executed."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, cast

from psycopg import Connection


class GivenRows:
    """Stands for a connection that answers each statement with these rows."""

    rowcount = 1

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = rows
        self.statements: list[str] = []
        self.row: tuple[Any, ...] = ()
        """The parameters of the last statement."""

    @property
    def connection(self) -> Connection[Any]:
        return cast("Connection[Any]", self)

    def execute(self, statement: str, row: tuple[Any, ...] = ()) -> Self:
        self.statements.append(statement)
        self.row = row
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    pipeline = transaction
