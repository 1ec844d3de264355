"""Job queues over HTTP: what waits in them, how they work it off, suspending; and topics."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from psycopg import Connection

from packhorse.jobs.consumers import live_reaches
from packhorse.jobs.ledger.figures import Figures
from packhorse.jobs.queue import Queue, UnknownQueue
from packhorse.jobs.store import queues
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.fields import Admin, IfMatch, Operator, QueueName, Reader
from packhorse_services.jobs.parts import of
from packhorse_services.jobs.queue_schemas import (
    QueueBody,
    QueueDocument,
    QueueList,
    QueueSummary,
    TopicDocument,
    TopicList,
    configuration_of,
    figures_document,
    queue_document,
)
from packhorse_services.jobs.tags import check_version, version_tag

router = APIRouter(route_class=StrictRoute, tags=["queues"])

_CHANGED = documented(404, 409, 412, 503)
_NOTHING = Figures()


@router.get("/job-queues", responses=documented(503))
async def list_queues(request: Request, _caller: Reader) -> QueueList:
    """List all queues with what waits in them, what they do and what they have done."""
    jobs = of(request).jobs
    statistics = await asyncio.to_thread(jobs.statistics)
    found = await asyncio.to_thread(jobs.queues)
    return QueueList(
        at=statistics.at,
        queues=[
            QueueSummary(
                **queue_document(one).model_dump(),
                statistics=figures_document(statistics.queues.get(one.name, _NOTHING)),
            )
            for one in found
        ],
        all=figures_document(statistics.all),
    )


@router.get("/job-topics", responses=documented(503))
async def list_topics(request: Request, _caller: Reader) -> TopicList:
    """List the topics that jobs were given for, and those whose jobs wait for a consumer."""
    parts = of(request)
    reaches = live_reaches(parts.discovery)
    statistics = await asyncio.to_thread(parts.jobs.statistics)
    waiting = {}
    if reaches is not None:
        found = await asyncio.to_thread(parts.jobs.unconsumed, [*reaches.values()])
        waiting = {one.topic: one.since for one in found}
    return TopicList(
        at=statistics.at,
        current=reaches is not None,
        topics=[
            TopicDocument(
                topic=topic,
                statistics=figures_document(figures),
                unconsumed_since=waiting.get(topic),
            )
            for topic, figures in statistics.topics.items()
        ],
    )


@router.get("/job-queues/{name}", responses=documented(404, 503))
async def get_queue(
    request: Request, response: Response, name: QueueName, _caller: Reader
) -> QueueDocument:
    """Return a queue, without its statistics."""
    return _answer(response, await asyncio.to_thread(of(request).jobs.queue, name))


@router.put(
    "/job-queues/{name}",
    responses={
        201: {"model": QueueDocument, "description": "It was made"},
        **documented(400, 409, 412, 413, 415, 503),
    },
)
async def put_queue(
    request: Request,
    response: Response,
    name: QueueName,
    _caller: Admin,
    body: QueueBody,
    *,
    if_match: IfMatch = None,
    if_none_match: Annotated[
        str | None, Header(pattern=r"^\*$", description="`*`: only where there is none")
    ] = None,
) -> QueueDocument:
    """Make a queue or change it; the waiting jobs of all topics go where they belong then."""
    configuration = configuration_of(name, body)

    def put(connection: Connection) -> Queue:
        before = _find(connection, name)
        if before is None:
            if if_match is not None:
                raise Problem(412, detail="there is no such queue; leave out If-Match to make it")
            response.status_code = 201
            return queues.put_queue(connection, configuration, 0)
        if if_none_match is not None:
            raise Problem(412, detail=f"there is a queue {name} already")
        version = before.version if check_version(if_match, _tag(before)) else None
        return queues.put_queue(connection, configuration, version)

    return _answer(response, await of(request).ask(put))


@router.delete("/job-queues/{name}", status_code=204, responses=_CHANGED)
async def remove_queue(
    request: Request, name: QueueName, _caller: Admin, if_match: IfMatch = None
) -> None:
    """Remove a queue; its jobs go to the queues that take their topics then. `main` stays."""

    def remove(connection: Connection) -> None:
        queues.remove_queue(connection, name, _version(connection, name, if_match))

    await of(request).ask(remove)


@router.post("/job-queues/{name}/suspend", responses=_CHANGED)
async def suspend_queue(
    request: Request,
    response: Response,
    name: QueueName,
    _caller: Operator,
    if_match: IfMatch = None,
) -> QueueDocument:
    """Let no job of a queue begin, on any instance, until it is resumed."""
    return _answer(response, await _set(request, name, if_match, suspended=True))


@router.post("/job-queues/{name}/resume", responses=_CHANGED)
async def resume_queue(
    request: Request,
    response: Response,
    name: QueueName,
    _caller: Operator,
    if_match: IfMatch = None,
) -> QueueDocument:
    """Let the jobs of a suspended queue begin again."""
    return _answer(response, await _set(request, name, if_match, suspended=False))


def _answer(response: Response, queue: Queue) -> QueueDocument:
    response.headers["ETag"] = _tag(queue)
    return queue_document(queue)


def _tag(queue: Queue) -> str:
    return version_tag(queue.version, queue.changed_at)


def _find(connection: Connection, name: str) -> Queue | None:
    try:
        return queues.get_queue(connection, name)
    except UnknownQueue:
        return None


def _version(connection: Connection, name: str, if_match: str | None) -> int | None:
    found = queues.get_queue(connection, name)
    return found.version if check_version(if_match, _tag(found)) else None


async def _set(request: Request, name: str, if_match: str | None, *, suspended: bool) -> Queue:
    def change(connection: Connection) -> Queue:
        version = _version(connection, name, if_match)
        return queues.suspend_queue(connection, name, suspended=suspended, version=version)

    return await of(request).ask(change)
