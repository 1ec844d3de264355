"""A part of a schedule that is to be changed, as a JSON merge patch (RFC 7396)."""

from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from packhorse.jobs.scheduling.definition import Schedule, ScheduleDefinition
from packhorse.runtime.validation import StrictBody
from packhorse_services.jobs.fields import Properties, Time, Topic
from packhorse_services.jobs.schedule_schemas import (
    ActionName,
    MissedName,
    RunOnName,
    ScheduleBody,
    definition_of,
    schedule_document,
)


class SchedulePatch(StrictBody):
    """Members of a schedule to change; null is what a PUT takes for one that is left out.

    The time_zone goes with its cron, unless it is given.
    """

    cron: str | None = None
    time_zone: str | None = None
    period_s: float | None = None
    at: Time | None = None
    action: ActionName | None = None
    topic: Topic | None = None
    properties: Properties | None = None
    priority: int | None = None
    description: str | None = None
    run_on: RunOnName | None = None
    concurrent: bool | None = None
    missed: MissedName | None = None
    missed_limit: int | None = None
    not_before: Time | None = None
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
        told = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(told) from None


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
