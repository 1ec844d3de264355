"""What can be done to jobs over HTTP: stop, retry, remove, one of them or many.

To the product's own jobs, those of topics below packhorse/, an admin alone does it: what they do
has operations with scopes of their own.
"""

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from psycopg import Connection
from pydantic import BaseModel, Field

from packhorse.jobs.filters import JobFilter
from packhorse.jobs.job import Job
from packhorse.jobs.ledger import changing, finding
from packhorse.jobs.ledger.changing import JobChange
from packhorse.runtime import audit
from packhorse.runtime.auth import Principal, TokenScope
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http.fields import (
    RESERVED,
    IfMatch,
    Number,
    Operator,
    require_may_give,
)
from packhorse_services.jobs.http.job_filter import FilterBody
from packhorse_services.jobs.http.job_schemas import JobDocument
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.http.tags import check_match

router = APIRouter(route_class=StrictRoute, tags=["jobs"])

MAX_BULK = 10_000
_ONE = documented(400, 404, 409, 412, 503)
_MANY = documented(400, 413, 415, 503)


class BulkDocument(BaseModel):
    """What came of a request about many jobs."""

    matching: int | None = Field(
        description="With dry_run: how many there are that this can be done to, up to the limit"
    )
    changed: int
    passed_over: int = Field(description="Those whose state was another one by then")
    next: str | None = Field(
        description="Where the limit was reached: send the request again with this as `after`"
    )


class BulkRequest(FilterBody):
    """Which jobs, and how many of them at most; each batch of some hundred is a transaction.

    Without the scope admin jobs below packhorse/ are left out; a topic below it is refused (403).
    """

    limit: int = Field(default=1_000, ge=1, le=MAX_BULK)
    after: str | None = Field(default=None, max_length=200, description="`next` of the last answer")
    dry_run: bool = Field(default=False, description="Only count them")


@router.post("/jobs/stop", responses=_MANY)
async def stop_jobs(request: Request, caller: Operator, body: BulkRequest) -> BulkDocument:
    """Stop the unfinished jobs that a filter means."""
    return await _bulk(request, JobChange.STOP, caller, body)


@router.post("/jobs/retry", responses=_MANY)
async def retry_jobs(request: Request, caller: Operator, body: BulkRequest) -> BulkDocument:
    """Let the finished jobs that a filter means run once more, the newest first."""
    return await _bulk(request, JobChange.RETRY, caller, body)


@router.post("/jobs/remove", responses=_MANY)
async def remove_jobs(request: Request, caller: Operator, body: BulkRequest) -> BulkDocument:
    """Remove the jobs that a filter means and that are not ACTIVE."""
    return await _bulk(request, JobChange.REMOVE, caller, body)


@router.post("/jobs/{number}/stop", status_code=202, responses=_ONE)
async def stop_job(
    request: Request, number: Number, caller: Operator, if_match: IfMatch = None
) -> JobDocument:
    """Stop a job wherever it is: at once when it waits, as soon as its consumer looks otherwise.

    One of a topic below packhorse/ needs the scope admin.
    """
    changed = await _change(request, JobChange.STOP, caller, number, if_match)
    return JobDocument.model_validate(changed)


@router.post("/jobs/{number}/retry", status_code=202, responses=_ONE)
async def retry_job(
    request: Request, number: Number, caller: Operator, if_match: IfMatch = None
) -> JobDocument:
    """Let a finished job run once more, under its number.

    One of a topic below packhorse/ needs the scope admin.
    """
    changed = await _change(request, JobChange.RETRY, caller, number, if_match)
    return JobDocument.model_validate(changed)


@router.delete("/jobs/{number}", status_code=204, responses=_ONE)
async def remove_job(
    request: Request,
    number: Number,
    caller: Operator,
    *,
    even_active: Annotated[
        bool, Query(description="Take it from a consumer that does not stop")
    ] = False,
    if_match: IfMatch = None,
) -> None:
    """Remove a job: one that waits ends as DROPPED, one of history is forgotten.

    One of a topic below packhorse/ needs the scope admin.
    """
    what = JobChange.ABANDON if even_active else JobChange.REMOVE
    await _change(request, what, caller, number, if_match)


async def _change(
    request: Request, what: JobChange, caller: Principal, number: int, if_match: str | None
) -> Job:
    def change(connection: Connection) -> Job:
        if if_match is not None:
            finding.hold(connection, number)
        present = finding.get(connection, number)
        require_may_give(caller, present.topic)
        if if_match is not None:
            check_match(if_match, JobDocument.model_validate(present))
        return changing.change(connection, what, number)

    return await of(request).ask(change)


async def _bulk(
    request: Request, what: JobChange, caller: Principal, body: BulkRequest
) -> BulkDocument:
    jobs, wanted = of(request).jobs, _changeable(caller, body.filter())
    if body.dry_run:
        count = await asyncio.to_thread(jobs.count, wanted, what, most=body.limit)
        return BulkDocument(matching=count, changed=0, passed_over=0, next=None)
    audit.note(request, state=body.state, topic=body.topic, limit=body.limit)
    await of(request).ask(lambda _: None)  # said first: each batch is a transaction of its own
    done = await asyncio.to_thread(jobs.bulk, what, wanted, limit=body.limit, after=body.after)
    audit.note(request, changed=done.changed)
    return BulkDocument(
        matching=None, changed=done.changed, passed_over=done.passed_over, next=done.after
    )


def _changeable(caller: Principal, wanted: JobFilter) -> JobFilter:
    """Leave out what the caller may not change. Raises `Problem` 403 where that is all of it."""
    require_may_give(caller, wanted.topic)
    if caller.may(TokenScope.ADMIN):
        return wanted
    return replace(wanted, without=f"{RESERVED}**")
