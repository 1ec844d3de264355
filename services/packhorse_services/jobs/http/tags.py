"""ETags of the documents, and what a client says that it has or means (RFC 9110)."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Response
from pydantic import BaseModel

from packhorse.runtime.problems import Problem
from packhorse_services.jobs.http.fields import IfMatch, OnlyNew


def tag_of(document: BaseModel) -> str:
    """Return the ETag of a document: another one whenever anything in it is different."""
    return f'"{hashlib.sha256(document.model_dump_json().encode()).hexdigest()[:24]}"'


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """A version of what has them; `stamp` distinguishes one made anew from the old."""

    number: int
    stamp: datetime

    @property
    def tag(self) -> str:
        """Its ETag."""
        return f'"{self.number}-{self.stamp.timestamp() * 1_000_000:.0f}"'


def meant_version(present: EntityVersion, if_match: str | None) -> int | None:
    """Return the version that a client means; None: any. Raises `Problem` 412 for another one."""
    if if_match is None:
        return None
    if not _names(if_match, present.tag, weak=False):
        raise _changed()
    return present.number


@dataclass(frozen=True)
class PutCondition:
    """What must be there for a PUT to change it."""

    if_match: str | None
    only_new: str | None


async def _put_condition(if_match: IfMatch = None, if_none_match: OnlyNew = None) -> PutCondition:
    return PutCondition(if_match, if_none_match)


PutIf = Annotated[PutCondition, Depends(_put_condition)]


def replaced_version(
    what: str, name: str, present: EntityVersion | None, condition: PutCondition
) -> int | None:
    """Return the version that a PUT replaces; None: any, also none at all.

    `what` says what `name` is of: `queue`. Raises `Problem` 412 when one is there that should not
    be, or none is there, or another version.
    """
    if present is None:
        if condition.if_match is not None:
            raise Problem(412, detail=f"there is no such {what}; leave out If-Match to make it")
        return None
    if condition.only_new is not None:
        raise Problem(412, detail=f"there is a {what} {name} already")
    return meant_version(present, condition.if_match)


def answer(document: BaseModel, if_none_match: str | None = None, status: int = 200) -> Response:
    """Return a document with its ETag; 304 without it when the client has it."""
    tag = tag_of(document)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and _names(if_none_match, tag, weak=True):
        return Response(status_code=304, headers=headers)
    return Response(document.model_dump_json(), status, headers, "application/json")


def check_match(if_match: str | None, present: BaseModel) -> None:
    """Raise `Problem` 412 unless the client means what is there now; without a header it does."""
    if if_match is not None and not _names(if_match, tag_of(present), weak=False):
        raise _changed()


def _changed() -> Problem:
    return Problem(412, detail="it has changed since you read it; read it again")


def _names(header: str, tag: str, *, weak: bool) -> bool:
    named = [one.strip() for one in header.split(",")]
    if weak:
        named = [one.removeprefix("W/") for one in named]
    return "*" in named or tag in named
