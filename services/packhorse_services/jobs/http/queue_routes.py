"""Job queues over HTTP: what waits in them, how they work it off, suspending; and topics."""

import asyncio
from collections import defaultdict

from fastapi import APIRouter, Request, Response
from psycopg import Connection

from packhorse.jobs.consumers import live_handled_topics
from packhorse.jobs.ledger.figures import JobFigures
from packhorse.jobs.ledger.waiting import Unconsumed
from packhorse.jobs.queue import JobQueue, UnknownQueue
from packhorse.jobs.store import queues
from packhorse.runtime.entity_tags import entity_tag
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http.fields import Admin, IfMatch, Operator, QueueName, Reader
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.http.queue_schemas import (
    FiguresDocument,
    JobQueueDocument,
    JobQueueList,
    JobQueueSummary,
    QueueBody,
    TopicList,
    configuration_of,
    queue_document,
    topic_document,
)
from packhorse_services.jobs.http.tags import EntityVersion, PutIf, meant_version, replaced_version

router = APIRouter(route_class=StrictRoute, tags=["queues"])

_CHANGED = documented(400, 404, 409, 412, 503)
_NOTHING = JobFigures()


@router.get("/job-queues", responses=documented(503))
async def list_queues(request: Request, _caller: Reader) -> JobQueueList:
    """List all queues with what waits in them, what they do and what they have done."""
    jobs = of(request).jobs
    statistics = await asyncio.to_thread(jobs.statistics)
    found = await asyncio.to_thread(jobs.queues)
    return JobQueueList(
        at=statistics.at,
        queues=[
            JobQueueSummary(
                **queue_document(one).model_dump(),
                statistics=FiguresDocument.model_validate(
                    statistics.queues.get(one.name, _NOTHING)
                ),
            )
            for one in found
        ],
        all=FiguresDocument.model_validate(statistics.all),
    )


@router.get("/job-topics", responses=documented(503))
async def list_topics(request: Request, _caller: Reader) -> TopicList:
    """List the topics that jobs were given for, and those whose jobs wait for a consumer."""
    parts = of(request)
    live = live_handled_topics(parts.discovery)
    statistics = await asyncio.to_thread(parts.jobs.statistics)
    waiting: dict[str, list[Unconsumed]] = defaultdict(list)
    if live is not None:
        for one in await asyncio.to_thread(parts.jobs.unconsumed, live):
            waiting[one.topic].append(one)
    return TopicList(
        at=statistics.at,
        current=live is not None,
        topics=[
            topic_document(topic, figures, waiting.get(topic, ()))
            for topic, figures in statistics.topics.items()
        ],
    )


@router.get("/job-queues/{name}", responses=documented(404, 503))
async def get_queue(
    request: Request, response: Response, name: QueueName, _caller: Reader
) -> JobQueueDocument:
    """Return a queue, without its statistics."""
    return _answer(response, await asyncio.to_thread(of(request).jobs.queue, name))


@router.put(
    "/job-queues/{name}",
    responses={
        201: {"model": JobQueueDocument, "description": "It was made"},
        **documented(400, 409, 412, 413, 415, 503),
    },
)
async def put_queue(
    request: Request,
    response: Response,
    name: QueueName,
    _caller: Admin,
    body: QueueBody,
    condition: PutIf,
) -> JobQueueDocument:
    """Make a queue or change it; the waiting jobs of all topics go where they belong then."""
    configuration = configuration_of(name, body)

    def put(connection: Connection) -> JobQueue:
        present = _present(connection, name)
        version = replaced_version("queue", name, present, condition)
        if present is not None:
            return queues.put_queue(connection, configuration, version)
        response.status_code = 201
        return queues.put_queue(connection, configuration, 0)

    return _answer(response, await of(request).ask(put))


@router.delete("/job-queues/{name}", status_code=204, responses=_CHANGED)
async def remove_queue(
    request: Request, name: QueueName, _caller: Admin, if_match: IfMatch = None
) -> None:
    """Remove a queue; its jobs go to the queues that take their topics then. `main` stays."""

    def remove(connection: Connection) -> None:
        queues.remove_queue(connection, name, _meant(connection, name, if_match))

    await of(request).ask(remove)


@router.post("/job-queues/{name}/suspend", responses=_CHANGED)
async def suspend_queue(
    request: Request,
    response: Response,
    name: QueueName,
    _caller: Operator,
    if_match: IfMatch = None,
) -> JobQueueDocument:
    """Let no job of a queue begin, on any instance, until it is resumed."""
    return _answer(response, await _set(request, name, if_match, suspended=True))


@router.post("/job-queues/{name}/resume", responses=_CHANGED)
async def resume_queue(
    request: Request,
    response: Response,
    name: QueueName,
    _caller: Operator,
    if_match: IfMatch = None,
) -> JobQueueDocument:
    """Let the jobs of a suspended queue begin again."""
    return _answer(response, await _set(request, name, if_match, suspended=False))


def _answer(response: Response, queue: JobQueue) -> JobQueueDocument:
    response.headers["ETag"] = entity_tag(_version_of(queue).tag)
    return queue_document(queue)


def _version_of(queue: JobQueue) -> EntityVersion:
    return EntityVersion(queue.version, queue.changed_at)


def _present(connection: Connection, name: str) -> EntityVersion | None:
    try:
        return _version_of(queues.get_queue(connection, name))
    except UnknownQueue:
        return None


def _meant(connection: Connection, name: str, if_match: str | None) -> int | None:
    return meant_version(_version_of(queues.get_queue(connection, name)), if_match)


async def _set(request: Request, name: str, if_match: str | None, *, suspended: bool) -> JobQueue:
    def change(connection: Connection) -> JobQueue:
        version = _meant(connection, name, if_match)
        return queues.suspend_queue(connection, name, suspended=suspended, version=version)

    return await of(request).ask(change)
