"""Queries of reports: which rows, in which order, from where on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from packhorse_services.pipeline.queries import RELATION, Value, literal
from packhorse_services.pipeline.reports.schemas import Report

_MOST_TEXT = 1000
"""Characters of a text that are shown: texts come from whoever wrote to the journal."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which hours, and whose; None stands for everybody's."""

    begin: datetime
    end: datetime
    subscriber: str | None = None
    agents: tuple[str, ...] | None = None

    def where(self, report: Report) -> str:
        """Return the condition on the report's rows."""
        days = [f"DATE '{time.date().isoformat()}'" for time in (self.begin, self.end)]
        parts = [f"day BETWEEN {days[0]} AND {days[1]}"]  # the tables are partitioned by it
        parts += [f"hour >= {literal(self.begin)}", f"hour < {literal(self.end)}"]
        if self.subscriber is not None and report.has_subscribers:
            parts.append(f"subscriber = {literal(self.subscriber)}")
        if self.agents is not None:
            parts.append(one_of("publisher_agent", self.agents))
        return " AND ".join(parts)


def page(
    report: Report, selection: Selection, behind: Sequence[Value] | None, most: int
) -> tuple[str, int]:
    """Return the query of up to `most` rows behind a key, and how many key columns end a row."""
    where = selection.where(report)
    if behind is not None:
        where += f" AND ({_behind(report.key, behind)})"
    columns = [_shown(report, column) for column in report.columns]
    keys = [f"{expression} AS key_{number}" for number, expression in enumerate(report.key)]
    order = ", ".join(report.key)
    return select([*columns, *keys], where, f"ORDER BY {order} LIMIT {most}"), len(keys)


def select(columns: Sequence[str], where: str, rest: str) -> str:
    """Return a query; every value in it must have come through `literal`."""
    return " ".join(["SELECT", ", ".join(columns), "FROM", RELATION, "WHERE", where, rest])


def one_of(column: str, values: Sequence[str]) -> str:
    """Return the condition that a column has one of the values."""
    if not values:
        return "false"
    return f"{column} IN ({', '.join(literal(value) for value in values)})"


def _shown(report: Report, column: str) -> str:
    is_text = report.row.model_fields[column].annotation is str
    cut = f"left({column}, {_MOST_TEXT}) AS {column}"
    return cut if is_text else f'"{column}"'


def _behind(key: Sequence[str], values: Sequence[Value]) -> str:
    """Return the condition on rows that come after the one whose key has `values`."""
    first, value = key[0], literal(values[0])
    if len(key) == 1:
        return f"{first} > {value}"
    return f"{first} > {value} OR ({first} = {value} AND ({_behind(key[1:], values[1:])}))"
