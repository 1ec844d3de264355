"""What a report is asked for: which hours, which rows of them, in which order, from where on."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from packhorse.errors import Permanent
from packhorse.runtime.moments import moment_of
from packhorse.runtime.paging import foreign_cursor, read_cursor, write_cursor
from packhorse_services.pipeline.reports.schemas import ReportKind
from packhorse_services.pipeline.storage.queries import RELATION, Value, literal, one_of

DAYS = 92
"""The most that one report is about."""

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


class WrongPeriod(Permanent):
    """There are no such hours to report: `name` is which end of them is wrong, `why` says more."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


def period(begin: str | None, end: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the whole hours that overlap [begin, end); the last 24 of them by default.

    Raises `WrongPeriod` for what is no moment, for no time between, and for too much.
    """
    last = _whole(_time("to", end), up=True) if end is not None else _whole(now, up=True)
    first = _whole(_time("from", begin), up=False) if begin is not None else last - _DAY
    if first >= last:
        raise WrongPeriod("from", f"{time_text(first)} is not before {time_text(last)}")
    if last - first > timedelta(days=DAYS):
        days = (last - first).days
        raise WrongPeriod("from", f"ask for {DAYS} days at most; this is {days}")
    return first, last


def time_text(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, without fractions of a second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(name: str, given: str) -> datetime:
    try:
        return moment_of(given)
    except ValueError as error:
        raise WrongPeriod(name, str(error)) from None


def _whole(time: datetime, *, up: bool) -> datetime:
    start = time.replace(minute=0, second=0, microsecond=0)
    return start + _HOUR if up and start != time else start


_MOST_TEXT = 1000
"""Characters of a text that are shown: texts come from whoever wrote to the journal."""


@dataclass(frozen=True, slots=True)
class ReportSelection:
    """Which hours, and whose; None stands for everybody's."""

    begin: datetime
    end: datetime
    subscriber: str | None = None
    agents: tuple[str, ...] | None = None

    def where(self, report: ReportKind) -> str:
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
    report: ReportKind, selection: ReportSelection, behind: Sequence[Value] | None, most: int
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


def _shown(report: ReportKind, column: str) -> str:
    is_text = report.row.model_fields[column].annotation is str
    cut = f"left({column}, {_MOST_TEXT}) AS {column}"
    return cut if is_text else f'"{column}"'


def _behind(key: Sequence[str], values: Sequence[Value]) -> str:
    """Return the condition on rows that come after the one whose key has `values`."""
    first, value = key[0], literal(values[0])
    if len(key) == 1:
        return f"{first} > {value}"
    return f"{first} > {value} OR ({first} = {value} AND ({_behind(key[1:], values[1:])}))"


_NUMBERS = frozenset({"hour", "rank"})
_BOUND = 2**37
"""Above each number of a key; a `datetime` ends with the year 9999, before 2**38 seconds."""
_NO_TEXT = re.compile("[\\0\\ud800-\\udfff]")
"""What no text of a table holds: what the reader of the tables can't be asked for."""


def write_key(values: Sequence[Value]) -> str:
    """Return the cursor of a page that begins behind the row with this key."""
    plain = [int(v.timestamp()) if isinstance(v, datetime) else v for v in values]
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return write_cursor(text)


def read_key(report: ReportKind, cursor: str) -> list[Value]:
    """Return the key that the page begins behind. Raises `Problem` 422 for no cursor of ours."""
    try:
        found = json.loads(read_cursor(cursor))
    except (ValueError, RecursionError):
        found = None
    if not _is_key(report, found):
        raise foreign_cursor()
    return [datetime.fromtimestamp(found[0], UTC), *found[1:]]


def _is_key(report: ReportKind, found: Any) -> bool:
    if not isinstance(found, list) or len(found) != len(report.key):
        return False
    return all(map(_fits, report.key, found))


def _fits(column: str, value: Any) -> bool:
    if column in _NUMBERS:
        return type(value) is int and 0 <= value < _BOUND
    return isinstance(value, str) and not _NO_TEXT.search(value)
