"""Questions to a table that need no Spark: answered in this process, in seconds less."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from deltalake import DeltaTable, QueryBuilder

RELATION = "requested"
"""What a query calls the table."""

Value = str | int | datetime

_SESSION = {"datafusion.execution.batch_size": "1000"}


def rows(table: DeltaTable, sql: str) -> Iterator[dict[str, Any]]:
    """Yield what a query on `RELATION` gives, a batch in memory at a time. Raises `OSError`.

    Arrow's own datasets are not used: their threads call back into Python, and a program that
    ends while one does is aborted.
    """
    answer = QueryBuilder(_SESSION).register(RELATION, table).execute(sql)
    while True:
        try:
            batch = next(answer, None)
        except Exception as error:  # the reader has no class for a file that is gone
            raise OSError(f"the table can't be read: {error}") from error
        if batch is None:
            return
        columns = [column.to_pylist() for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, values, strict=True))


def literal(value: Value) -> str:
    """Return a value as SQL; in a text only the quote means something, and it is doubled."""
    if isinstance(value, datetime):
        micros = int(value.timestamp()) * 1_000_000
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''") + "'"


def one_of(expression: str, values: Collection[Value]) -> str:
    """Return the condition that a column, or what is made of some, is one of the values."""
    return f"{expression} IN ({', '.join(map(literal, values))})" if values else "false"
