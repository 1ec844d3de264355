"""Acts on content and jobs over HTTP, for the services in whose databases they are kept."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response
from psycopg import Connection
from pydantic import BaseModel, Field

from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.moments import Moment, moment_of
from packhorse.runtime.paging import foreign_cursor, link_to, page_url, read_cursor, write_cursor
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute

_FIND = """
    SELECT id, happened_at, issued_by, action, detail FROM bookkeeping.audit
    WHERE command_id = '' AND (%(since)s::timestamptz IS NULL OR happened_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR happened_at <= %(until)s)
        AND (%(caller)s::text IS NULL OR issued_by = %(caller)s)
        AND (%(behind)s::bigint IS NULL OR (happened_at, id) < (%(at)s, %(behind)s))
    ORDER BY happened_at DESC, id DESC LIMIT %(limit)s
"""
_OWN = ("address", "method", "object", "operation", "trace")

Ask: TypeAlias = Callable[
    [Request, Callable[[Connection], list[tuple[Any, ...]]]], Awaitable[list[tuple[Any, ...]]]
]
"""Asks the database of a request's service a question, as the bookkeeper."""


@dataclass(frozen=True)
class ActQuery:
    """The parameters of a list of acts; a dependency."""

    caller: Annotated[str | None, Query(max_length=200, description="Only of whom")] = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100
    cursor: Annotated[str | None, Query(max_length=200)] = None


class ActDocument(BaseModel):
    """What somebody did."""

    id: int
    at: datetime
    caller: str
    address: str = Field(description="From where, as the service saw it: a proxy's, or a console's")
    operation: str = Field(description="As this document and that of the service name it: putNode")
    method: str
    object: str = Field(description="The path of the request")
    about: dict[str, Any] = Field(description="What its path does not say")
    trace: str = Field(description="The id of the trace that it was a part of")


class ActList(BaseModel):
    """The newest acts first."""

    acts: list[ActDocument]
    next: str | None = Field(description="URL of the next page, or null at the end")


def act_router(ask: Ask) -> APIRouter:
    """Return the route that lists the acts in a service's database."""
    router = APIRouter(route_class=StrictRoute, tags=["acts"])

    @router.get("/acts", responses=documented(503))
    async def list_acts(
        request: Request,
        response: Response,
        _caller: Annotated[Principal, Depends(require(TokenScope.ADMIN))],
        wanted: Annotated[ActQuery, Depends()],
    ) -> ActList:
        """List who wrote content, changed jobs and the like in the last 30 days, newest first."""
        at, behind = _place(wanted.cursor)
        given = {**asdict(wanted), "at": at, "behind": behind, "limit": wanted.limit + 1}
        rows = await ask(request, lambda connection: connection.execute(_FIND, given).fetchall())
        acts, following = [_act(*row) for row in rows[: wanted.limit]], None
        if len(rows) > wanted.limit:
            place = write_cursor(f"{acts[-1].at.isoformat()} {acts[-1].id}")
            following = page_url("/acts", **{**asdict(wanted), "cursor": place})
        response.headers.update(link_to(following))
        return ActList(acts=acts, next=following)

    return router


def _place(cursor: str | None) -> tuple[datetime | None, int | None]:
    """Return the act that a page is behind. Raises `Problem` 422 for what is no cursor."""
    if cursor is None:
        return None, None
    at, _, number = read_cursor(cursor).partition(" ")
    try:
        moment, behind = moment_of(at), int(number)
    except ValueError:
        raise foreign_cursor() from None
    if not 0 <= behind < 2**63:
        raise foreign_cursor()
    return moment, behind


def _act(
    number: int, at: datetime, caller: str, operation: str, detail: Mapping[str, Any]
) -> ActDocument:
    own = {name: str(detail.get(name, "")) for name in _OWN}
    about = {name: value for name, value in detail.items() if name not in _OWN}
    return ActDocument(
        **{**own, "operation": operation}, id=number, at=at, caller=caller, about=about
    )
