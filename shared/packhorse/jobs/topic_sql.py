"""Patterns of topics as SQL; the filters are imported by the command line, without psycopg."""

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from packhorse.jobs.filters import topic_range

Part = tuple[sql.SQL | sql.Composed, Sequence[Any]]
"""A piece of SQL text and its parameters."""


def topic_part(pattern: str) -> Part:
    """Return the condition that a topic, which compares by code points, matches a valid pattern."""
    if pattern == "**":
        return sql.SQL("true"), ()
    bounds = topic_range(pattern)
    if bounds is None:
        return sql.SQL("topic = %s"), [pattern]
    within = sql.SQL("topic >= %s AND topic < %s")
    if pattern.endswith("/**"):
        return within, bounds
    past = len(bounds[0]) + 1
    return within + sql.SQL(" AND strpos(substr(topic, %s), '/') = 0"), [*bounds, past]
