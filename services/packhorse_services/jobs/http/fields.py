"""Fields and parameters that several routes of the jobs service take, and what they allow."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from packhorse.errors import Permanent
from packhorse.jobs.names import (
    MAX_NAME,
    require_id,
    require_name,
    require_pattern,
    require_properties,
    require_topic,
)
from packhorse.jobs.scheduling.definition import EventAction, Schedule, ScheduleDefinition
from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.problems import Problem

MAX_PAGE = 200
MAX_NUMBER = 2**63 - 1
_SEGMENT = r"[A-Za-z0-9_.-]+"

Reader = Annotated[Principal, Depends(require(TokenScope.QUEUES_READ))]
Operator = Annotated[Principal, Depends(require(TokenScope.JOBS_OPERATE))]
Admin = Annotated[Principal, Depends(require(TokenScope.ADMIN))]


class Document(BaseModel):
    """What is answered; `model_validate` takes an object that has its members."""

    model_config = ConfigDict(from_attributes=True)


def checked(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the check with its refusal as a ValueError, which becomes 422 with the field."""

    def validate(value: Any) -> Any:
        try:
            return check(value)
        except Permanent as error:
            raise ValueError(str(error)) from None

    return validate


def _pattern(pattern: str) -> dict[str, JsonValue]:
    """Document a pattern; what refuses is the library, whose words say more."""
    return {"pattern": pattern}


_TOPIC = rf"{_SEGMENT}(/{_SEGMENT})*"
Topic = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, json_schema_extra=_pattern(f"^{_TOPIC}$")),
    AfterValidator(checked(require_topic)),
]
Pattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME,
        json_schema_extra=_pattern(rf"^({_TOPIC}(/\*\*?)?|\*\*)$"),
    ),
    AfterValidator(checked(require_pattern)),
]
JobId = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(checked(require_id))
]
Properties = Annotated[dict[str, Any], AfterValidator(checked(require_properties))]


def _name(what: str) -> AfterValidator:
    return AfterValidator(checked(lambda text: require_name(text, what)))


Number = Annotated[int, Path(ge=1, le=MAX_NUMBER, description="The job's number")]
_NAME = Path(min_length=1, max_length=MAX_NAME, json_schema_extra=_pattern(f"^{_SEGMENT}$"))
QueueName = Annotated[str, _NAME, _name("queue")]
WatchName = Annotated[str, _NAME, _name("content watch")]
ScheduleName = Annotated[str, _NAME, _name("schedule")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=200)]
IfMatch = Annotated[
    str | None, Header(max_length=1000, description="Only if this is still its ETag")
]
OnlyNew = Annotated[
    str | None, Header(max_length=1000, description="`*`: only where there is none")
]
"""The `If-None-Match` of a PUT."""

RESERVED = "packhorse/"
"""What topics begin with whose jobs and events are the product's own."""
_RESERVED_NAMES = "packhorse."
"""What the schedules are called that the product's programs declare."""


def require_own_event(topic: str) -> None:
    """Raise `Problem` 422 for an event that only the product's programs send."""
    if topic.startswith(RESERVED):
        wrong = {"pointer": "#/topic", "detail": f"may not begin with {RESERVED}"}
        raise Problem(422, detail="such events are the product's own", errors=[wrong])


def require_may_give(caller: Principal, topic: str) -> None:
    """Raise `Problem` 403 where a job is the product's own, and the caller is no admin.

    What such a job does has an operation with a scope of its own, or is done by a schedule.
    """
    if topic.startswith(RESERVED) and not caller.may(TokenScope.ADMIN):
        raise Problem(
            403,
            detail=f"jobs below {RESERVED} are the product's own: to give, stop, retry or remove "
            f"one, or to change what a schedule gives, needs the scope {TokenScope.ADMIN}",
        )


def require_may_remove(caller: Principal, present: Schedule) -> None:
    """Raise `Problem` 403 where a schedule is the product's own, and the caller is no admin."""
    _require_may_name(caller, present.name)
    require_may_give(caller, present.definition.action.topic)


def require_may_define(
    caller: Principal, present: Schedule | None, wanted: ScheduleDefinition
) -> None:
    """Raise `Problem` where a schedule would do what the caller may not do itself.

    When it fires, and whether, may be changed by whoever may change schedules. A new one takes no
    name of the product's: the program that declares it would find it as its own, changed.
    """
    before = None if present is None else present.definition
    if before is None:
        _require_may_name(caller, wanted.name)
    if before is not None and (before.action, before.run_on) == (wanted.action, wanted.run_on):
        return
    if isinstance(wanted.action, EventAction):
        require_own_event(wanted.action.topic)
    require_may_give(caller, wanted.action.topic)
    if before is not None:
        require_may_give(caller, before.action.topic)


def _require_may_name(caller: Principal, name: str) -> None:
    if name.startswith(_RESERVED_NAMES) and not caller.may(TokenScope.ADMIN):
        raise Problem(
            403,
            detail=f"schedules called {_RESERVED_NAMES}… are the product's own: to make or remove "
            f"one needs the scope {TokenScope.ADMIN}",
        )
