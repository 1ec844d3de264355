"""Jobs over HTTP: add, list, look at one."""

import asyncio
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from psycopg import Connection

from packhorse.jobs.job import Job, UnknownJob
from packhorse.jobs.ledger import finding
from packhorse.jobs.store import adding
from packhorse.jobs.store.adding import AddResult
from packhorse.jobs.store.given import NewJob
from packhorse.runtime import audit
from packhorse.runtime.entity_tags import KnownTags, tagged
from packhorse.runtime.idempotency_key import IdempotencyKey
from packhorse.runtime.openapi import LOCATION
from packhorse.runtime.paging import link_to, page_url
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.tracing import TRACEPARENT, inject
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http import request_keys
from packhorse_services.jobs.http.fields import (
    Cursor,
    Limit,
    Number,
    Operator,
    Reader,
    require_may_give,
)
from packhorse_services.jobs.http.job_filter import JobListQuery
from packhorse_services.jobs.http.job_schemas import (
    AddedDocument,
    JobDocument,
    JobList,
    JobRequest,
    JobSummary,
)
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.http.request_keys import RequestKey, request_key

router = APIRouter(route_class=StrictRoute, tags=["jobs"])

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Unchanged since the ETag that was sent"}
}


@router.get("/jobs", responses=documented(503))
async def list_jobs(
    request: Request,
    response: Response,
    _caller: Reader,
    requested: Annotated[JobListQuery, Depends()],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobList:
    """List jobs: unfinished ones oldest first, then history newest first."""
    find = of(request).jobs.find  # a page is of one moment, so that no job is in it twice
    page = await asyncio.to_thread(find, requested.filter(), after=cursor, limit=limit)
    following = None
    if page.after is not None:
        following = page_url("/jobs", **requested.query(), limit=limit, cursor=page.after)
    response.headers.update(link_to(following))
    return JobList(jobs=[JobSummary.model_validate(job) for job in page.jobs], next=following)


@router.post(
    "/jobs",
    status_code=201,
    response_model=AddedDocument,
    responses={
        200: {
            "model": AddedDocument,
            "description": "It was there already; see the verdict",
            **LOCATION,
        },
        201: LOCATION,
        **documented(400, 410, 413, 415, 503),
    },
)
async def add_job(
    request: Request,
    caller: Operator,
    body: JobRequest,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add a job, which exactly one instance will do.

    Sent again with its `Idempotency-Key` within a day it has no second effect. A job with an id is
    one job as well: given again without an application, nothing changes. Topics below packhorse/
    are the product's own, and for the scope admin.
    """
    audit.note(request, topic=body.topic)
    require_may_give(caller, body.topic)
    job, key = _new_job(body), request_key(caller.name, idempotency_key, "POST /jobs", body)
    added = await of(request).ask(
        lambda connection: _add(connection, body.application, job, key), act=False
    )
    document = AddedDocument.model_validate(added)
    status = 201 if added.verdict is AddResult.ADDED else 200
    headers = {"Location": f"/jobs/{added.job.number}"}
    return Response(document.model_dump_json(), status, headers, "application/json")


def _add(
    connection: Connection, application: str, job: NewJob, key: RequestKey | None
) -> adding.AddedJob:
    if key is not None and (seen := request_keys.take(connection, key)) is not None:
        return adding.AddedJob(_seen(connection, seen), AddResult.EXISTING)
    added = adding.add_job(connection, application, job)
    if key is not None:
        request_keys.note(connection, key, added.job.number)
    return added


def _seen(connection: Connection, number: int) -> Job:
    try:
        return finding.get(connection, number)
    except UnknownJob:
        why = f"this request has added job {number}, which is over and no longer kept"
        raise Problem(410, detail=why) from None


def _new_job(body: JobRequest) -> NewJob:
    if body.ready_at is not None and body.delay_s is not None:
        wrong = {"pointer": "#/delay_s", "detail": "not with ready_at"}
        raise Problem(422, detail="give ready_at or delay_s, not both", errors=[wrong])
    return NewJob(
        topic=body.topic,
        properties=body.properties,
        id=body.id,
        priority=body.priority,
        ready_at=body.ready_at,
        delay=None if body.delay_s is None else timedelta(seconds=body.delay_s),
        only_on=body.only_on,
        max_retries=body.max_retries,
        traceparent=inject()[TRACEPARENT].decode(),
    )


@router.get(
    "/jobs/{number}",
    response_model=JobDocument,
    responses={**NOT_MODIFIED, **documented(404, 503)},
)
async def get_job(request: Request, number: Number, _caller: Reader, known: KnownTags) -> Response:
    """Return a job with its properties, its log, and the attempts that did not finish it."""
    found = await of(request).ask(lambda connection: finding.get(connection, number))
    return tagged(JobDocument.model_validate(found).model_dump_json().encode(), known)
