"""Versions of what jobs are made of, and those that a client means (RFC 9110)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends
from pydantic import BaseModel

from packhorse.runtime.entity_tags import EntityTags, digest_of
from packhorse.runtime.problems import Problem
from packhorse_services.jobs.http.fields import IfMatch, OnlyNew


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """A version of what has them; `stamp` distinguishes one made anew from the old."""

    number: int
    stamp: datetime

    @property
    def tag(self) -> str:
        """What its ETag holds."""
        return f"{self.number}-{self.stamp.timestamp() * 1_000_000:.0f}"


def meant_version(present: EntityVersion, if_match: str | None) -> int | None:
    """Return the version that a client means; None: any.

    Raises `Problem` 412 for another one, and 400 for what is no list of tags.
    """
    if if_match is None:
        return None
    if present.tag not in EntityTags.parse(if_match, weak=False):
        raise _changed()
    return present.number


@dataclass(frozen=True)
class PutCondition:
    """What must be there for a PUT to change it."""

    if_match: str | None
    only_new: str | None


async def _put_condition(if_match: IfMatch = None, if_none_match: OnlyNew = None) -> PutCondition:
    if if_none_match is not None and if_none_match.strip() != "*":
        raise Problem(
            400, detail="If-None-Match is understood as * only, to make what is not there"
        )
    return PutCondition(if_match, if_none_match)


PutIf = Annotated[PutCondition, Depends(_put_condition)]


def replaced_version(
    what: str, name: str, present: EntityVersion | None, condition: PutCondition
) -> int | None:
    """Return the version that a PUT replaces; None: any, also none at all.

    `what` says what `name` is of: `queue`. Raises `Problem` 412 when one is there that should not
    be, or none is there, or another version; and 400 for what is no list of tags.
    """
    if present is None:
        if condition.if_match is not None:
            raise Problem(412, detail=f"there is no such {what}; leave out If-Match to make it")
        return None
    if condition.only_new is not None:
        raise Problem(412, detail=f"there is a {what} {name} already")
    return meant_version(present, condition.if_match)


def check_match(if_match: str, present: BaseModel) -> None:
    """Raise `Problem` 412 unless a client means what is there now; 400 for no list of tags."""
    tag = digest_of(present.model_dump_json().encode())
    if tag not in EntityTags.parse(if_match, weak=False):
        raise _changed()


def _changed() -> Problem:
    return Problem(412, detail="it has changed since you read it; read it again")
