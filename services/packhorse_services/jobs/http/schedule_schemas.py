"""The documents of schedules, and a part of one that is to be changed (RFC 7396)."""

from datetime import datetime, timedelta
from typing import Any, Literal, Self

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError, model_validator

from packhorse.jobs.scheduling import rows
from packhorse.jobs.scheduling.definition import (
    MAX_DESCRIPTION,
    MAX_MISSED,
    MAX_TIMES,
    Schedule,
    ScheduleDefinition,
)
from packhorse.jobs.scheduling.timing import MAX_CRON, MAX_PERIOD, MIN_PERIOD
from packhorse.runtime.moments import Moment
from packhorse.runtime.validation import StrictBody
from packhorse_services.jobs.http.fields import Document, Properties, Topic

RunOnName = Literal["SINGLE", "LEADER", "ALL"]
MissedName = Literal["SKIP", "ONCE", "ALL"]
ActionName = Literal["JOB", "EVENT"]

_CRON = "Five fields: minute, hour, day of the month, month, day of the week"
_RUN_ON = (
    "LEADER: the first instance, in the cluster's order, that consumes the topic does it. ALL: a "
    "job for every instance that does"
)
_CONCURRENT = "false: skipped while a job of this schedule is not done"
_MISSED = "What becomes of fire times at which nobody could fire"


class ScheduleBody(StrictBody):
    """A schedule to make, or to put in the place of one: exactly one of cron, period_s and at."""

    cron: str | None = Field(default=None, min_length=1, max_length=MAX_CRON, description=_CRON)
    time_zone: str = Field(
        default="UTC", min_length=1, max_length=100, description="Of cron: an IANA name"
    )
    period_s: float | None = Field(
        default=None, ge=MIN_PERIOD.total_seconds(), le=MAX_PERIOD.total_seconds()
    )
    at: Moment | None = None
    action: ActionName = Field(default="JOB", description="Add a job, or send an event")
    topic: Topic
    properties: Properties = Field(default={}, description="At most 64 KiB as JSON")
    priority: int = Field(default=0, ge=-100, le=100, description="Of the job")
    description: str = Field(default="", max_length=MAX_DESCRIPTION)
    run_on: RunOnName = Field(default="SINGLE", description=_RUN_ON)
    concurrent: bool = Field(default=True, description=_CONCURRENT)
    missed: MissedName = Field(default="ONCE", description=_MISSED)
    missed_limit: int = Field(default=10, ge=1, le=MAX_MISSED, description="With missed: ALL")
    not_before: Moment | None = Field(default=None, description="The first fire time of a period")
    times: int | None = Field(default=None, ge=1, le=MAX_TIMES, description="null: without end")
    suspended: bool = False

    @model_validator(mode="after")
    def _one_timing(self) -> Self:
        if sum(one is not None for one in (self.cron, self.period_s, self.at)) != 1:
            raise ValueError("give exactly one of cron, period_s and at")
        if self.cron is None and self.time_zone != "UTC":
            raise ValueError("time_zone belongs to cron")
        return self


class ScheduleDocument(BaseModel):
    """A schedule."""

    name: str
    description: str
    cron: str | None = Field(description=_CRON)
    time_zone: str | None
    period_s: float | None
    at: datetime | None
    action: ActionName
    topic: str
    properties: dict[str, Any]
    priority: int
    run_on: RunOnName = Field(description=_RUN_ON)
    concurrent: bool = Field(description=_CONCURRENT)
    missed: MissedName = Field(description=_MISSED)
    missed_limit: int
    not_before: datetime | None
    times: int | None
    suspended: bool
    next_fire_time: datetime | None = Field(description="null: it has ended")
    last_fire_time: datetime | None
    times_left: int | None
    origin: str = Field(description="Who made it; @declared: a program of packhorse")
    changed: bool = Field(description="A declared one that somebody has changed, and stays so")
    created_at: datetime
    updated_at: datetime


class ScheduleList(BaseModel):
    """Schedules by name."""

    schedules: list[ScheduleDocument]
    next: str | None = Field(description="URL of the next page, or null at the end")


class FireTimeDocument(Document):
    """A fire time of a schedule, and its outcome."""

    fire_time: datetime = Field(description="When it was planned")
    outcome: Literal["FIRED", "SKIPPED", "MISSED"]
    decided_at: datetime
    instance: str = Field(description="Which instance decided")
    jobs: list[int] = Field(description="The numbers of the jobs that were added")
    missed: int = Field(description="How many fire times before it were missed; 1000: or more")
    reason: str


class FireTimeList(BaseModel):
    """The last fire times of a schedule, newest first."""

    fire_times: list[FireTimeDocument]
    next: str | None = Field(description="URL of the next page, or null at the end")


def definition_of(name: str, body: ScheduleBody) -> ScheduleDefinition:
    """Return what a caller wants; unchecked, but for what the body's own types promise."""
    period = None if body.period_s is None else timedelta(seconds=body.period_s)
    return rows.definition_of({**body.model_dump(), "name": name, "period": period})


def schedule_document(schedule: Schedule) -> ScheduleDocument:
    """Return the document of a schedule."""
    defined = rows.flat(schedule.definition)
    period: timedelta | None = defined["period"]
    return ScheduleDocument(
        **defined,
        **{name: getattr(schedule, name) for name in rows.STORED},
        period_s=None if period is None else period.total_seconds(),
    )


class SchedulePatch(StrictBody):
    """Members of a schedule to change; null is what a PUT takes for one that is left out.

    The time_zone goes with its cron, unless it is given.
    """

    cron: str | None = None
    time_zone: str | None = None
    period_s: float | None = None
    at: Moment | None = None
    action: ActionName | None = None
    topic: Topic | None = None
    properties: Properties | None = None
    priority: int | None = None
    description: str | None = None
    run_on: RunOnName | None = None
    concurrent: bool | None = None
    missed: MissedName | None = None
    missed_limit: int | None = None
    not_before: Moment | None = None
    times: int | None = None
    suspended: bool | None = None


def patched(schedule: Schedule, patch: SchedulePatch) -> ScheduleDefinition:
    """Return the definition that a patch makes of a schedule's.

    Raises `RequestValidationError` when the whole makes no sense, with each reason.
    """
    name = schedule.definition.name
    members = schedule_document(schedule).model_dump(include={*ScheduleBody.model_fields})
    present = {member: value for member, value in members.items() if value is not None}
    given = {member: getattr(patch, member) for member in patch.model_fields_set}
    if given.get("cron", "kept") is None:
        given.setdefault("time_zone", None)
    try:
        return definition_of(name, ScheduleBody.model_validate(merged(present, given)))
    except ValidationError as error:
        reported = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(reported) from None


def merged(target: Any, patch: Any) -> Any:
    """Return what a merge patch makes of a value: null takes a member away, at every depth."""
    if not isinstance(patch, dict):
        return patch
    base = target if isinstance(target, dict) else {}
    kept = {name: value for name, value in base.items() if name not in patch}
    changed = {
        name: merged(base.get(name), value) for name, value in patch.items() if value is not None
    }
    return {**kept, **changed}
