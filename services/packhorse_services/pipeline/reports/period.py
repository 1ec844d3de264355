"""The hours that a report is about."""

from datetime import UTC, datetime, timedelta

from packhorse.errors import Permanent
from packhorse.runtime.moments import moment_of

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
        raise WrongPeriod("from", f"{text(first)} is not before {text(last)}")
    if last - first > timedelta(days=DAYS):
        days = (last - first).days
        raise WrongPeriod("from", f"ask for {DAYS} days at most; this is {days}")
    return first, last


def text(time: datetime) -> str:
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
