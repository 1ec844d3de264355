"""When a schedule is due: by a cron expression, every so often, or at one moment."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from packhorse.jobs.scheduling.errors import InvalidSchedule

MAX_CRON = 255
"""Characters of a cron expression."""
MIN_PERIOD = timedelta(seconds=1)
MAX_PERIOD = timedelta(days=3660)

_FIELDS = 5
_LAST_YEAR = 9000
"""Later moments are refused: the next one must have a place in a `datetime`."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields: minute, hour, day of the month, month, day of the week (0 and 7: Sunday).

    As Debian's cron does it: `*`, lists, ranges, steps, names of months and days, `L` and `#`;
    days of month and week are OR unless one begins with `*`. A time of day that the clocks leave
    out comes right after the gap, one that they show twice comes the first time; what repeats
    within the hour, or every hour, goes by what has really passed.
    """

    expression: str
    time_zone: str = "UTC"
    """A name of the IANA database, such as `Europe/Berlin`."""


@dataclass(frozen=True, slots=True)
class Every:
    """So long after the last time, whatever the clocks on the wall do."""

    period: timedelta


@dataclass(frozen=True, slots=True)
class At:
    """Once."""

    moment: datetime


When = Cron | Every | At


def period_text(period: timedelta) -> str:
    """Return a period in words, `1 day 12 h`: with colons it looks like a time of day."""
    minutes, seconds = divmod(period.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    parts = [f"{days} day{'s' * (days != 1)}"] if days else []
    parts += [f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min")) if count]
    return " ".join([*parts, f"{seconds:g} s"] if seconds or not parts else parts)


def require_timing(when: When) -> None:
    """Raise `InvalidSchedule` unless it is one that comes at least once."""
    if isinstance(when, Cron):
        _require_cron(when)
    elif isinstance(when, Every):
        if not MIN_PERIOD <= when.period <= MAX_PERIOD:
            raise InvalidSchedule(
                f"the period is {when.period.total_seconds():g} s and may be from "
                f"{MIN_PERIOD.total_seconds():g} s to {MAX_PERIOD.days} days"
            )
    else:
        require_moment("moment", when.moment)


def require_moment(what: str, moment: datetime) -> None:
    """Raise `InvalidSchedule` unless a moment has an offset from UTC and is a usual one."""
    if moment.utcoffset() is None:
        raise InvalidSchedule(f"the {what} needs an offset from UTC, such as 2030-01-01T12:00:00Z")
    if not 1 < moment.year < _LAST_YEAR:
        raise InvalidSchedule(f"the {what} must be before the year {_LAST_YEAR}")


def times_after(cron: Cron, after: datetime) -> Iterator[datetime]:
    """Yield its times, in UTC, strictly after a moment and growing. Raises `InvalidSchedule`.

    Ends when there is none in fifty years.
    """
    zone, last = _zone(cron.time_zone), after
    try:
        # From two hours before: where the clocks go back, a time of day begins with its first one.
        times = CronSim(cron.expression, (after - timedelta(hours=2)).astimezone(zone))
    except CronSimError as error:
        raise _bad_cron(cron, str(error)) from error
    for local in times:
        moment = local.astimezone(UTC)
        if moment.year >= _LAST_YEAR:
            return
        if moment > last:
            last = moment
            yield moment


def _require_cron(cron: Cron) -> None:
    if len(cron.expression) > MAX_CRON:
        raise InvalidSchedule(f"a cron expression has at most {MAX_CRON} characters")
    fields = len(cron.expression.split())
    if fields != _FIELDS:
        raise _bad_cron(cron, f"it has {fields} field{'s' * (fields != 1)}")
    _zone(cron.time_zone)
    if next(times_after(cron, datetime(2000, 1, 1, tzinfo=UTC)), None) is None:
        raise _bad_cron(cron, "it never fires")


def _bad_cron(cron: Cron, why: str) -> InvalidSchedule:
    reported = why.replace("Bad day-of-month", "no such day of the month").replace("Bad", "wrong")
    return InvalidSchedule(
        f"{cron.expression[:80]!r} is no cron expression: {reported}; it has five fields: minute, "
        "hour, day of the month, month and day of the week, such as '30 2 * * mon-fri'"
    )


def _zone(name: str) -> ZoneInfo:
    if name not in _known_zones():
        raise InvalidSchedule(
            f"{name[:80]!r} is no time zone of the IANA database, such as 'Europe/Berlin'"
        )
    return ZoneInfo(name)


@cache
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())
