"""The hours that a report is about."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from packhorse.runtime.problems import Problem

DAYS = 92
"""The most that one report is about."""

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.IGNORECASE)


def period(begin: str | None, end: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the whole hours that overlap [begin, end); the last 24 of them by default.

    Raises `Problem` 422 for what is no RFC 3339 time, for no time between, and for too much.
    """
    last = _whole(_time("to", end), up=True) if end is not None else _whole(now, up=True)
    first = _whole(_time("from", begin), up=False) if begin is not None else last - _DAY
    if first >= last:
        raise refusal({"from": f"{text(first)} is not before {text(last)}"})
    if last - first > timedelta(days=DAYS):
        raise refusal({"from": f"ask for {DAYS} days at most; this is {(last - first).days}"})
    return first, last


def text(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, without fractions of a second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refusal(wrong: Mapping[str, str]) -> Problem:
    """Return the problem that parameters of the query are wrong."""
    errors = [{"pointer": f"query/{name}", "detail": why} for name, why in wrong.items()]
    return Problem(422, detail="the query can't be answered; see errors", errors=errors)


def _time(name: str, given: str) -> datetime:
    try:
        if not _TIME.fullmatch(given):
            raise ValueError
        found = datetime.fromisoformat(given.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        wanted = "no RFC 3339 time such as 2026-11-21T10:00:00Z (a + is written %2B in a URL)"
        raise refusal({name: wanted}) from None
    if not 1970 <= found.year < 9000:
        raise refusal({name: "name a year from 1970 on"})
    return found


def _whole(time: datetime, *, up: bool) -> datetime:
    floor = time.replace(minute=0, second=0, microsecond=0)
    return floor + _HOUR if up and floor != time else floor
