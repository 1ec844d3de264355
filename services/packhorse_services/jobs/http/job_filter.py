"""Which jobs a caller means: the parameters of a list, and the body of what is done to many."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from packhorse.errors import Permanent
from packhorse.jobs.filters import MAX_TEMPLATES, MAX_VALUE, JobFilter, StateGroup
from packhorse.jobs.names import MAX_NAME
from packhorse.runtime.problems import Problem
from packhorse.runtime.validation import StrictBody, check_json
from packhorse_services.jobs.http.fields import Pattern

Group = Literal[
    "ALL",
    "ACTIVE",
    "QUEUED",
    "HISTORY",
    "CANCELLED",
    "SUCCEEDED",
    "STOPPED",
    "GIVEN_UP",
    "ERROR",
    "DROPPED",
]
_LONGEST_TEMPLATE = 4_096
_GROUP = "HISTORY: every final state; CANCELLED: every one but SUCCEEDED"
_TEMPLATES = (
    "Conditions on properties: an operator and a name, and the value, as in "
    '{">=size": 10, "kind": "image"}; all of a template have to hold, of several templates one'
)
_NO_NUL = r"^[^\x00]+$"
Name = Annotated[str | None, Query(min_length=1, max_length=MAX_NAME, pattern=_NO_NUL)]
_Text = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]


@dataclass(frozen=True)
class JobListQuery:
    """The parameters of a list of jobs; a dependency."""

    state: Annotated[Group, Query(description=_GROUP)] = "ALL"
    topic: Annotated[Pattern, Query(description="A topic, or a pattern such as images/**")] = "**"
    queue: Name = None
    id: Name = None
    instance: Annotated[Name, Query(description="Who works on it, or has finished it")] = None
    application: Annotated[Name, Query(description="Who gave it")] = None
    schedule: Name = None
    template: Annotated[
        list[Annotated[str, Field(max_length=_LONGEST_TEMPLATE)]] | None,
        Query(max_length=MAX_TEMPLATES, description=f"A JSON object. {_TEMPLATES}"),
    ] = None

    def filter(self) -> JobFilter:
        """Return it for the database. Raises `Problem` 422."""
        templates = [_template(text, at) for at, text in enumerate(self.template or ())]
        return _filter(self, templates, "query/template")

    def query(self) -> dict[str, Any]:
        """Return the parameters that were given, for the URL of the next page."""
        given = {name: value for name, value in vars(self).items() if value}
        return {n: v for n, v in given.items() if (n, v) not in (("state", "ALL"), ("topic", "**"))}


def _template(text: str, at: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
        check_json(found)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _refused('a template is a JSON object such as {">=size": 10}', f"query/template/{at}")
    return found


def _refused(why: str, pointer: str) -> Problem:
    return Problem(422, detail=why, errors=[{"pointer": pointer, "detail": why}])


Scalar = str | int | float | bool | None


class FilterBody(StrictBody):
    """Which jobs are meant; what is not given does not restrict."""

    state: Group = Field(default="ALL", description=_GROUP)
    topic: Pattern = Field(default="**", description="A topic, or a pattern such as images/**")
    queue: _Text | None = None
    id: _Text | None = None
    instance: _Text | None = Field(default=None, description="Who works on it, or finished it")
    application: _Text | None = Field(default=None, description="Who gave it")
    schedule: _Text | None = None
    templates: list[dict[Annotated[str, Field(max_length=MAX_VALUE)], Scalar]] = Field(
        default=[], max_length=MAX_TEMPLATES, description=_TEMPLATES
    )

    def filter(self) -> JobFilter:
        """Return it for the database. Raises `Problem` 422."""
        return _filter(self, self.templates, "#/templates")


def _filter(
    requested: JobListQuery | FilterBody, templates: Sequence[Mapping[str, Any]], pointer: str
) -> JobFilter:
    """Return it for the database. Raises `Problem` 422, at `pointer` in the request."""
    try:
        return JobFilter(
            group=StateGroup(requested.state),
            topic=requested.topic,
            templates=templates,
            id=requested.id,
            queue=requested.queue,
            instance=requested.instance,
            application=requested.application,
            schedule=requested.schedule,
        )
    except Permanent as error:
        raise _refused(str(error), pointer) from error
