"""The pages of jobs, and the parts of them that the browser asks for again and again."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from packhorse.errors import Permanent
from packhorse.jobs.filters import StateGroup
from packhorse.jobs.sessions import reading
from packhorse.runtime.auth import Principal, TokenScope
from packhorse.runtime.pages.rendering import PREFIX
from packhorse.runtime.pages.session import visitor, visitor_or_sign_in
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http.fields import Number
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.page.rendering import PAGES, refused
from packhorse_services.jobs.page.search import Search
from packhorse_services.jobs.page.shown import JobsPageContent, ShownJob, content, shown_job

router = APIRouter(route_class=StrictRoute, prefix=PREFIX, include_in_schema=False)

RequestedSearch = Annotated[Search, Depends()]
Visitor = Annotated[Principal, Depends(visitor)]
VisitorOrForm = Annotated[Principal | Response, Depends(visitor_or_sign_in)]
Done = Annotated[str, Query(max_length=20)]
Count = Annotated[int, Query(ge=0, le=2**53)]

_DONE = {
    "retry": "It is queued again.",
    "stop": "It is stopped, or its consumer is asked to.",
    "remove": "The job is removed.",
}
_DONE_MANY = {"retry": "jobs are queued again.", "stop": "jobs are stopped, or asked to."}


def _notice(done: str, count: int | None) -> str:
    if count is None:
        return _DONE.get(done, "")
    return f"{count} {_DONE_MANY[done]}" if done in _DONE_MANY else ""


@router.get("/jobs")
async def show_jobs(
    request: Request,
    who: VisitorOrForm,
    requested: RequestedSearch,
    done: Done = "",
    count: Count | None = None,
) -> Response:
    """Show jobs by a filter, queues and schedules."""
    if isinstance(who, Response):
        return who
    return PAGES.page(
        "jobs.html",
        shown=await _content(request, requested),
        requested=requested,
        who=who.name,
        may_operate=who.may(TokenScope.JOBS_OPERATE),
        states=[*StateGroup],
        notice=_notice(done, count),
    )


@router.get("/jobs/content")
async def show_jobs_content(
    request: Request,
    who: Visitor,
    requested: RequestedSearch,
    _done: Annotated[str, Query(alias="done", max_length=20)] = "",
    _count: Annotated[str, Query(alias="count", max_length=20)] = "",
) -> Response:
    """Return what changes of the page of jobs; 304 when nothing has."""
    return PAGES.part(
        request,
        "jobs_content.html",
        shown=await _content(request, requested),
        requested=requested,
        may_operate=who.may(TokenScope.JOBS_OPERATE),
    )


@router.get("/jobs/{number:int}")
async def show_job(
    request: Request, who: VisitorOrForm, number: Number, done: Done = ""
) -> Response:
    """Show one job with its attempts and its log."""
    if isinstance(who, Response):
        return who
    try:
        shown = await _job(request, number)
    except Permanent as error:
        return refused(error)
    may = who.may(TokenScope.JOBS_OPERATE)
    return PAGES.page(
        "job.html", shown=shown, who=who.name, may_operate=may, notice=_notice(done, None)
    )


@router.get("/jobs/{number:int}/content")
async def show_job_content(
    request: Request,
    who: Visitor,
    number: Number,
    _done: Annotated[str, Query(alias="done", max_length=20)] = "",
) -> Response:
    """Return what changes of the page of a job; 304 when nothing has."""
    shown, may = await _job(request, number), who.may(TokenScope.JOBS_OPERATE)
    return PAGES.part(request, "job_content.html", shown=shown, may_operate=may)


async def _content(request: Request, requested: Search) -> JobsPageContent:
    parts = of(request)

    def gather() -> JobsPageContent:
        with reading(parts.pool.connection) as connection:
            return content(connection, parts.discovery, requested)

    return await asyncio.to_thread(gather)


async def _job(request: Request, number: int) -> ShownJob:
    parts = of(request)

    def gather() -> ShownJob:
        with reading(parts.pool.connection) as connection:
            return shown_job(connection, parts.discovery, number)

    return await asyncio.to_thread(gather)
