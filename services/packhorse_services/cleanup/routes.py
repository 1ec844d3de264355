"""Cleanup runs over HTTP: the last ones, one with what it removed, and asking for one."""

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from psycopg import Connection
from pydantic import BaseModel, Field

from packhorse.bookkeeping.audit_rows import write_act
from packhorse.db.transactions import writing
from packhorse.runtime import audit
from packhorse.runtime.auth import Principal, TokenScope, require
from packhorse.runtime.openapi import LOCATION
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.report import (
    CleanupRun,
    RemovalDocument,
    RunWithRemovals,
    with_removals,
)
from packhorse_services.cleanup.runner import request_run


class RunRequest(StrictBody):
    """What a caller asks for."""

    dry_run: bool = Field(default=False, description="Only report what would be removed")


class RequestedRun(BaseModel):
    """The run that was asked for."""

    id: int


router = APIRouter(route_class=StrictRoute, prefix="/cleanup", tags=["cleanup"])

Admin = Annotated[Principal, Depends(require(TokenScope.ADMIN))]
Result = TypeVar("Result")


@router.get(
    "/runs",
    responses=documented(503),
    response_model_exclude_unset=True,
)
async def list_cleanup_runs(
    request: Request, _: Admin, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[CleanupRun]:
    """Return the last runs, the newest first."""
    return await in_transaction(request, lambda connection: ledger.recent(connection, limit))


@router.get(
    "/runs/{run_id}",
    responses=documented(404, 503),
    response_model_exclude_unset=True,
)
async def get_cleanup_run(
    request: Request,
    response: Response,
    _: Admin,
    run_id: Annotated[int, Path(ge=1, lt=2**63)],
    after: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> RunWithRemovals:
    """Return a run with a page of its removals, by key, from behind the key `after`."""

    def find(connection: Connection) -> tuple[CleanupRun | None, list[RemovalDocument]]:
        page = ledger.removals(connection, run_id, after, limit + 1)
        return ledger.find(connection, run_id), page

    run, removals = await in_transaction(request, find)
    if run is None:
        raise Problem(404, detail=f"there is no cleanup run {run_id}; the oldest are forgotten")
    following = None
    if len(removals) > limit:
        place = removals[limit - 1].key
        following = page_url(f"/cleanup/runs/{run_id}", after=place, limit=limit)
    response.headers.update(link_to(following))
    return with_removals(run, removals[:limit]).model_copy(update={"next": following})


@router.post("/runs", status_code=202, responses={202: LOCATION, **documented(409, 503)})
async def start_cleanup_run(
    request: Request, response: Response, caller: Admin, body: RunRequest
) -> RequestedRun:
    """Ask for a run; it begins within seconds on one of the instances."""
    origin = f"request of {caller.name}"
    audit.note(request, dry_run=body.dry_run)

    def ask_for_it(connection: Connection) -> int:
        run = request_run(connection, request.app.state.application, origin, dry_run=body.dry_run)
        write_act(connection)
        return run

    run_id = await in_transaction(request, ask_for_it)
    response.headers["Location"] = f"/cleanup/runs/{run_id}"
    return RequestedRun(id=run_id)


async def in_transaction(request: Request, act: Callable[[Connection], Result]) -> Result:
    """Do something in a transaction of the service's database, in a thread."""

    def acting() -> Result:
        with writing(request.app.state.pool.connection) as connection:
            return act(connection)

    return await asyncio.to_thread(acting)
