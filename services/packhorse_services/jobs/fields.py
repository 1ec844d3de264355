"""Fields and parameters that several routes of the jobs service take, and what they allow."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, JsonValue

from packhorse.errors import Permanent
from packhorse.jobs.names import (
    MAX_NAME,
    require_id,
    require_name,
    require_pattern,
    require_properties,
    require_topic,
)
from packhorse.runtime.auth import Principal, Scope, require

MAX_PAGE = 200
MAX_NUMBER = 2**63 - 1
_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_SEGMENT = r"[A-Za-z0-9_.-]+"
_PRINTABLE = r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$"

Reader = Annotated[Principal, Depends(require(Scope.QUEUES_READ))]
Operator = Annotated[Principal, Depends(require(Scope.JOBS_OPERATE))]
Admin = Annotated[Principal, Depends(require(Scope.ADMIN))]


def checked(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the check with its refusal as a ValueError, which becomes 422 with the field."""

    def validate(value: Any) -> Any:
        try:
            return check(value)
        except Permanent as error:
            raise ValueError(str(error)) from None

    return validate


def _text_of_time(value: Any) -> Any:
    if value is not None and not isinstance(value, str | datetime):
        raise ValueError("a time is a text such as 2026-03-01T02:30:00Z")
    return value


def _in_range(value: datetime) -> datetime:
    if not _FIRST <= value <= _LAST:
        raise ValueError("a time lies between the years 2000 and 9000")
    return value


Time = Annotated[
    AwareDatetime,
    Field(strict=False, description="RFC 3339, with an offset or Z"),
    BeforeValidator(_text_of_time),
    AfterValidator(_in_range),
]


def _told(pattern: str) -> dict[str, JsonValue]:
    """Document a pattern; what refuses is the library, whose words say more."""
    return {"pattern": pattern}


_TOPIC = rf"{_SEGMENT}(/{_SEGMENT})*"
Topic = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, json_schema_extra=_told(f"^{_TOPIC}$")),
    AfterValidator(checked(require_topic)),
]
Pattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME,
        json_schema_extra=_told(rf"^({_TOPIC}(/\*\*?)?|\*\*)$"),
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
_NAME = Path(min_length=1, max_length=MAX_NAME, json_schema_extra=_told(f"^{_SEGMENT}$"))
QueueName = Annotated[str, _NAME, _name("queue")]
ScheduleName = Annotated[str, _NAME, _name("schedule")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=200)]
IfMatch = Annotated[
    str | None, Header(max_length=1000, description="Only if this is still its ETag")
]
IfNoneMatch = Annotated[str | None, Header(max_length=1000)]
OnlyNew = Annotated[
    str | None, Header(pattern=r"^\*$", description="`*`: only where there is none")
]
"""The `If-None-Match` of a PUT."""

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=_PRINTABLE,
        description="Names this request: sent again within a day, it has no second effect",
    ),
]
