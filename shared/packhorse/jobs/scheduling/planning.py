"""Which fire times of a schedule are due, which of them fire, and which one is next. No I/O."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile

from packhorse.jobs.scheduling.definition import Missed, ScheduleDefinition
from packhorse.jobs.scheduling.timing import At, Cron, Every, times_after

ON_TIME = timedelta(seconds=60)
"""How late a schedule may fire without a misfire: a change of the leader takes some seconds."""
MOST_COUNTED = 1_000
"""Fire times that are counted one by one; more are reported as that number."""

_INSTANT = timedelta(microseconds=1)
_FIRST_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class FiringPlan:
    """What is to be done now."""

    fire: tuple[datetime, ...]
    """Oldest first."""
    missed: int
    """How many due fire times do not fire."""
    last_missed: datetime | None
    """The newest fire time, when nothing fires."""
    next_fire_time: datetime | None
    """The first one that is not due yet; None: there is none any more."""


def first_fire_time(definition: ScheduleDefinition, now: datetime) -> datetime | None:
    """Return the first fire time of a schedule that is new or was changed at `now`.

    The moment of `At` is that, passed or not.
    """
    when, earliest = definition.when, definition.not_before or now
    if isinstance(when, At):
        return when.moment
    if isinstance(when, Every):
        return earliest if earliest > now else now + when.period
    return next(times_after(when, max(now, earliest - _INSTANT)), None)


def plan(definition: ScheduleDefinition, next_fire_time: datetime, now: datetime) -> FiringPlan:
    """Decide about a schedule whose next fire time is `next_fire_time`."""
    if next_fire_time > now:
        return FiringPlan((), 0, None, next_fire_time)
    wanted = definition.missed_limit if definition.missed is Missed.ALL else 1
    newest, number = _due(definition, next_fire_time, now, wanted)
    following = _following(definition, newest[-1], now)
    if definition.missed is Missed.SKIP and newest[-1] < now - ON_TIME:
        return FiringPlan((), number, newest[-1], following)
    return FiringPlan(newest, number - len(newest), None, following)


def replan(
    definition: ScheduleDefinition, next_fire_time: datetime, now: datetime
) -> datetime | None:
    """Return the next fire time after the clock was found to have gone back.

    A period does not wait for the hour to pass again. A moment of a cron expression that has
    fired comes up again, and is known by its row.
    """
    when = definition.when
    if isinstance(when, At):
        return next_fire_time
    earliest = max(now, definition.not_before or now)
    if isinstance(when, Every):
        return min(next_fire_time, earliest + when.period)
    return first_fire_time(definition, now)


def _due(
    definition: ScheduleDefinition, first: datetime, now: datetime, wanted: int
) -> tuple[tuple[datetime, ...], int]:
    """Return the newest fire times up to now, and how many there are in all; `first` is one."""
    when = definition.when
    if isinstance(when, At):
        return (first,), 1
    if isinstance(when, Every):
        number = (now - first) // when.period + 1
        newest = range(max(0, number - wanted), number)
        return tuple(first + when.period * index for index in newest), number
    counted = list(islice(_from(when, first, now), MOST_COUNTED + 1))
    if len(counted) <= MOST_COUNTED:
        return tuple(counted[-wanted:]), len(counted)
    return _newest(when, first, now, wanted), MOST_COUNTED


def _newest(cron: Cron, first: datetime, now: datetime, wanted: int) -> tuple[datetime, ...]:
    """Look back further and further, so that what was away for years is not gone through."""
    window = _FIRST_WINDOW
    while True:
        start = max(first, now - window)
        found = deque(
            takewhile(lambda fire_time: fire_time <= now, times_after(cron, start)), wanted
        )
        if len(found) == wanted or start == first:
            return tuple(found)
        window *= 4


def _from(cron: Cron, first: datetime, now: datetime) -> Iterator[datetime]:
    later = takewhile(lambda fire_time: fire_time <= now, times_after(cron, first))
    return chain((first,), later)


def _following(definition: ScheduleDefinition, last: datetime, now: datetime) -> datetime | None:
    when = definition.when
    if isinstance(when, At):
        return None
    if isinstance(when, Every):
        return last + when.period
    return next(times_after(when, now), None)
