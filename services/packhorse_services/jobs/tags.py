"""ETags of the documents, and what a client says that it has or means (RFC 9110)."""

import hashlib
from datetime import datetime

from fastapi import Response
from pydantic import BaseModel

from packhorse.runtime.problems import Problem


def tag_of(document: BaseModel) -> str:
    """Return the ETag of a document: another one whenever anything in it is different."""
    return f'"{hashlib.sha256(document.model_dump_json().encode()).hexdigest()[:24]}"'


def version_tag(version: int, stamp: datetime) -> str:
    """Return the ETag of a version of what has them; `stamp` tells one made anew from the old."""
    return f'"{version}-{stamp.timestamp() * 1_000_000:.0f}"'


def check_version(if_match: str | None, present: str) -> bool:
    """Tell whether a client means a version at all. Raises `Problem` 412 when it is another."""
    if if_match is None:
        return False
    if not _names(if_match, present, weak=False):
        raise _changed()
    return True


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
