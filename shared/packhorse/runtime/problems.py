"""Errors as RFC 9457 problems: one table from exceptions to statuses, one way to render them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from packhorse.db.connect import AWAY
from packhorse.errors import PackhorseError, Permanent, Transient

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
_MAX_DETAIL = 2000


class FieldError(BaseModel):
    """One thing that is wrong with a request."""

    pointer: str = Field(description="JSON pointer into the body, or `query/…`, `path/…`")
    detail: str


class ProblemDocument(BaseModel):
    """What every error answer holds (RFC 9457)."""

    type: str = Field(description="What kind of problem: a relative URI that explains it")
    title: str
    status: int
    detail: str = ""
    request_id: str = ""
    trace_id: str = ""
    errors: list[FieldError] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem; `slug` is the last part of its type URI and never changes."""

    status: int
    slug: str
    title: str
    retry_after_s: int | None = None

    @property
    def type(self) -> str:
        """The type URI, relative to the service."""
        return f"/problems/{self.slug}"


INVALID_REQUEST = ProblemKind(422, "invalid-request", "The request does not say what it must")
UNAVAILABLE = ProblemKind(503, "unavailable", "Not available right now", RETRY_AFTER_S)
REFUSED = ProblemKind(422, "refused", "The request can't be done as it is")
INTERNAL = ProblemKind(500, "internal", "A fault of the server")

GENERIC: Mapping[int, ProblemKind] = {
    400: ProblemKind(400, "malformed", "The request can't be read"),
    401: ProblemKind(401, "unauthenticated", "A valid token is needed"),
    403: ProblemKind(403, "forbidden", "The token does not allow this"),
    404: ProblemKind(404, "not-found", "There is nothing here"),
    405: ProblemKind(405, "method-not-allowed", "This resource has no such method"),
    408: ProblemKind(408, "too-slow", "The request came too slowly"),
    409: ProblemKind(409, "conflict", "The request conflicts with the present state"),
    410: ProblemKind(410, "gone", "It is no longer here"),
    412: ProblemKind(412, "precondition-failed", "It has changed since you read it"),
    413: ProblemKind(413, "too-large", "The request body is too large"),
    415: ProblemKind(415, "unsupported-media-type", "The request body has the wrong media type"),
    416: ProblemKind(416, "range-not-satisfiable", "The range lies outside"),
    422: INVALID_REQUEST,
    429: ProblemKind(429, "too-many-requests", "Too many requests", RETRY_AFTER_S),
    431: ProblemKind(431, "head-too-large", "The request line and headers are too large"),
    500: INTERNAL,
    503: UNAVAILABLE,
}

Table = Mapping[type[Exception], ProblemKind]

TABLE: Table = {
    Transient: UNAVAILABLE,
    Permanent: REFUSED,
    PackhorseError: INTERNAL,
    **dict.fromkeys(AWAY, UNAVAILABLE),
    PoolTimeout: UNAVAILABLE,
    PoolClosed: UNAVAILABLE,
    TooManyRequests: UNAVAILABLE,
    ClientDisconnect: GENERIC[400],
}


class Problem(HTTPException):
    """An error that a route answers on purpose; `detail` says what to do."""

    def __init__(
        self,
        status: int,
        title: str = "",
        detail: str = "",
        *,
        slug: str = "",
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        generic = generic_kind(status)
        super().__init__(status, detail=detail, headers=dict(headers or {}))
        self.kind = ProblemKind(
            status, slug or generic.slug, title or generic.title, generic.retry_after_s
        )
        self.errors = tuple(errors)


def generic_kind(status: int) -> ProblemKind:
    """Return the kind that a bare status stands for."""
    known = GENERIC.get(status)
    if known is not None:
        return known
    phrase = HTTPStatus(status).phrase
    return ProblemKind(status, phrase.lower().replace(" ", "-"), phrase)


def kind_of(error: Exception, table: Table) -> ProblemKind | None:
    """Return the entry of `table` for the error's nearest class, or None."""
    for parent in type(error).__mro__:
        if parent in table:
            return table[parent]
    return None


def problem_from(error: Exception, table: Table = TABLE) -> Problem:
    """Return the problem that `error` is to the caller; a database's own words are left out."""
    if isinstance(error, Problem):
        return error
    kind = kind_of(error, table) or INTERNAL
    own_words = isinstance(error, PackhorseError) and kind is not INTERNAL
    detail = str(error) if own_words else _GUARDED_DETAIL.get(kind.status, "")
    problem = Problem(kind.status, kind.title, detail, slug=kind.slug)
    problem.kind = kind
    return problem


_GUARDED_DETAIL = {
    500: "The server's log has more, under the request id.",
    503: "The database is away or too busy; try again.",
}


def document_of(problem: Problem) -> dict[str, Any]:
    """Return the members of the problem itself, without those of the request."""
    kind = problem.kind
    body: dict[str, Any] = {"type": kind.type, "title": kind.title, "status": kind.status}
    if problem.detail:
        body["detail"] = problem.detail[:_MAX_DETAIL]
    if problem.errors:
        body["errors"] = list(problem.errors)
    return body


def render(problem: Problem, *, request_id: str = "", trace_id: str = "") -> Response:
    """Return the answer to send; safe for any text in the problem."""
    kind = problem.kind
    body = document_of(problem)
    if request_id:
        body["request_id"] = request_id
    if trace_id:
        body["trace_id"] = trace_id
    headers = dict(problem.headers or {})
    if kind.retry_after_s is not None:
        headers.setdefault("Retry-After", str(kind.retry_after_s))
    content = json.dumps(body).encode("ascii")  # escapes lone surrogates, which UTF-8 can't hold
    return Response(content, kind.status, headers, MEDIA_TYPE)


_AGAIN = {"headers": {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for these statuses, each a problem."""
    return {
        status: {
            "description": generic_kind(status).title,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
            **(_AGAIN if status in (429, 503) else {}),
        }
        for status in statuses
    }
