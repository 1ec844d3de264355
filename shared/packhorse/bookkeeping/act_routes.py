"""Acts on content and jobs over HTTP, for the services in whose databases they are kept."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Query, Request
from psycopg import Connection
from pydantic import BaseModel, Field

from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.moments import Moment
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute

_FIND = """
    SELECT id, happened_at, issued_by, action, detail FROM bookkeeping.audit
    WHERE command_id = '' AND (%(since)s::timestamptz IS NULL OR happened_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR happened_at <= %(until)s)
        AND (%(caller)s::text IS NULL OR issued_by = %(caller)s)
    ORDER BY happened_at DESC, id DESC LIMIT %(limit)s
"""
_OWN = ("address", "method", "object", "operation", "trace")

Ask: TypeAlias = Callable[
    [Request, Callable[[Connection], list[tuple[Any, ...]]]], Awaitable[list[tuple[Any, ...]]]
]
"""Asks the database of a request's service a question, as the bookkeeper."""


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


def act_router(ask: Ask) -> APIRouter:
    """Return the route that lists the acts in a service's database."""
    router = APIRouter(route_class=StrictRoute, tags=["acts"])

    @router.get("/acts", responses=documented(503))
    async def list_acts(
        request: Request,
        _caller: Annotated[Principal, Depends(require(TokenScope.ADMIN))],
        caller: Annotated[str | None, Query(max_length=200, description="Only of whom")] = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> ActList:
        """List who wrote content, changed jobs and the like in the last 30 days, newest first."""
        given = {"caller": caller, "since": since, "until": until, "limit": limit}
        rows = await ask(request, lambda connection: connection.execute(_FIND, given).fetchall())
        return ActList(acts=[_act(*row) for row in rows])

    return router


def _act(
    number: int, at: datetime, caller: str, operation: str, detail: Mapping[str, Any]
) -> ActDocument:
    own = {name: str(detail.get(name, "")) for name in _OWN}
    about = {name: value for name, value in detail.items() if name not in _OWN}
    return ActDocument(
        **{**own, "operation": operation}, id=number, at=at, caller=caller, about=about
    )
