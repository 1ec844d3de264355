"""What a schedule is: when, what then, on which instances, and what becomes of misfires."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from packhorse.jobs.event import APPLICATION
from packhorse.jobs.names import require_name, require_properties, require_topic
from packhorse.jobs.scheduling.errors import InvalidSchedule
from packhorse.jobs.scheduling.timing import At, When, require_moment, require_timing

MAX_MISSED = 100
"""Moments that `Missed.ALL` may make up for at once."""
MAX_TIMES = 1_000_000_000
MAX_PRIORITY = 100
MAX_DESCRIPTION = 1_000
"""Characters."""


class RunOn(StrEnum):
    """Who fires, and who does the job."""

    SINGLE = "SINGLE"
    """Any one instance."""
    LEADER = "LEADER"
    """The one with the leader task fires, and the first that consumes the topic does the job."""
    ALL = "ALL"
    """A job for every live instance that has a consumer for the topic; an event for every one."""


class Missed(StrEnum):
    """What becomes of fire times at which nobody could fire: more than a minute ago, or several."""

    SKIP = "SKIP"
    """Nothing: the next fire time is the next one."""
    ONCE = "ONCE"
    """The newest is made up for, the others are not."""
    ALL = "ALL"
    """The newest are made up for, `missed_limit` at most."""


@dataclass(frozen=True, slots=True)
class JobAction:
    """Adds a job."""

    topic: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True, slots=True)
class EventAction:
    """Sends an event, which every instance hears once, whoever sends it."""

    topic: str
    properties: Mapping[str, Any] = field(default_factory=dict)


Action = JobAction | EventAction


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """What somebody wants; checked by `require_schedule`."""

    name: str
    when: When
    action: Action
    description: str = ""
    run_on: RunOn = RunOn.SINGLE
    concurrent: bool = True
    """False: no job is added while one of this schedule is not done; its fire time is skipped."""
    missed: Missed = Missed.ONCE
    missed_limit: int = 10
    not_before: datetime | None = None
    """No fire time before it; the first one of a period."""
    times: int | None = None
    """How often it fires before it ends; None: without end."""
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored. All times are the database's (R28)."""

    definition: ScheduleDefinition
    """As it is now, `suspended` included."""
    origin: str
    """Who made it: `@declared` for a program of the product, else the caller."""
    changed: bool
    """Somebody has changed a declared one, so that no program changes it back."""
    version: int
    """Grows with every change by somebody, suspending included; not when it fires."""
    next_fire_time: datetime | None
    """None: it has ended."""
    last_fire_time: datetime | None
    times_left: int | None
    created_at: datetime
    updated_at: datetime

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name


class FireTimeOutcome(StrEnum):
    """The outcome of a fire time."""

    FIRED = "FIRED"
    SKIPPED = "SKIPPED"
    """A job before it is not done; or it runs on ALL, and no instance has a consumer."""
    MISSED = "MISSED"
    """Nobody could fire then, and it was not made up for."""


@dataclass(frozen=True, slots=True)
class FireTime:
    """One fire time of a schedule, and its outcome."""

    fire_time: datetime
    """When it was planned."""
    outcome: FireTimeOutcome
    decided_at: datetime
    instance: str
    """Which instance decided."""
    jobs: tuple[int, ...]
    """The numbers of the jobs that were added."""
    missed: int
    """How many fire times before this one were missed with it; 1000: or more."""
    reason: str


def require_schedule(definition: ScheduleDefinition) -> ScheduleDefinition:
    """Return a definition as it is. Raises `InvalidSchedule`, `InvalidName`, `InvalidProperties`.

    That the moment of `At` has not passed is for whoever knows what time it is.
    """
    require_name(definition.name, "schedule")
    require_timing(definition.when)
    _require_action(definition.action)
    _require_limits(definition)
    if definition.not_before is not None:
        require_moment("'not before'", definition.not_before)
        if isinstance(definition.when, At):
            raise InvalidSchedule("a schedule at one moment has no 'not before'")
    if not definition.concurrent and isinstance(definition.action, EventAction):
        raise InvalidSchedule("'concurrent: false' is for jobs: an event is over once it is sent")
    return definition


def _require_action(action: Action) -> None:
    require_topic(action.topic)
    require_properties(action.properties)
    if isinstance(action, JobAction) and not -MAX_PRIORITY <= action.priority <= MAX_PRIORITY:
        raise InvalidSchedule(
            f"the priority is {action.priority} and may be from {-MAX_PRIORITY} to {MAX_PRIORITY}"
        )
    if isinstance(action, EventAction) and APPLICATION in action.properties:
        raise InvalidSchedule(f"nobody sets the property {APPLICATION}: it is who sent an event")


def _require_limits(definition: ScheduleDefinition) -> None:
    if not 1 <= definition.missed_limit <= MAX_MISSED:
        raise InvalidSchedule(
            f"the limit of missed fire times is {definition.missed_limit} and may be from 1 to "
            f"{MAX_MISSED}"
        )
    if definition.times is not None and not 1 <= definition.times <= MAX_TIMES:
        raise InvalidSchedule(f"'times' is {definition.times} and may be from 1 to {MAX_TIMES:,}")
    if len(definition.description) > MAX_DESCRIPTION or "\0" in definition.description:
        raise InvalidSchedule(
            f"a description has at most {MAX_DESCRIPTION} characters, and no U+0000"
        )
