"""Statements that SQLAlchemy Core composes, on psycopg connections.

For what puts conditions together at run time; everything else is SQL text (ADR 0058). Import this
module only where a search is made: programs that make none load neither dialect nor tables.
"""

from typing import Any

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import ClauseElement

_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]


def composed(statement: ClauseElement) -> tuple[bytes, dict[str, Any]]:
    """Return the text and the parameters of a statement, for `execute` of any psycopg connection.

    Values are always parameters. They reach psycopg as they were given: whoever compares with
    JSON gives its text and casts it. Of an array, compare with `any_`, not with `in_`.
    """
    compiled = statement.compile(dialect=_DIALECT)
    return compiled.string.encode(), dict(compiled.params)
