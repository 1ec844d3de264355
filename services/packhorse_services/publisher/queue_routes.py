"""Reading queues and subscribers."""

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from packhorse.runtime.auth import Principal, Scope, require
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.publisher.collaborators import of
from packhorse_services.publisher.queues.cursor import read_cursor, write_cursor
from packhorse_services.publisher.queues.schemas import (
    ErrorQueueDocument,
    QueueDocument,
    QueueList,
    SubscriberDocument,
    SubscriberList,
    failed_document,
    queue_document,
    subscriber_document,
    summary,
)

router = APIRouter(route_class=StrictRoute, tags=["queues"])

MAX_PAGE = 1_000

Reader = Annotated[Principal, Depends(require(Scope.QUEUES_READ))]
SubscriberName = Annotated[str, Path(max_length=200)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=100)]


@router.get("/queues", responses=documented(503))
async def list_queues(request: Request, _caller: Reader) -> QueueList:
    """List the queues of all subscribers; cheap enough to ask all the time."""
    publisher = of(request)
    queues = await publisher.queues.overview()
    return QueueList(agent=publisher.agent, queues=[summary(queue) for queue in queues])


@router.get(
    "/queues/{subscriber}",
    responses={
        200: {"model": QueueDocument},
        304: {"description": "Unchanged since the ETag that was sent"},
        **documented(404, 503),
    },
    response_model=QueueDocument,
)
async def get_queue(
    request: Request,
    subscriber: SubscriberName,
    _caller: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
    if_none_match: Annotated[str | None, Header(max_length=1000)] = None,
) -> Response:
    """Return the packages that a subscriber has still to import, oldest first."""
    publisher = of(request)
    behind = read_cursor(cursor)
    queue = await publisher.queues.queue(subscriber, limit=limit + 1, skip_to=behind + 1)
    headers = {"ETag": queue.tag, "Cache-Control": "private, no-cache"}
    if queue.tag in [tag.strip() for tag in (if_none_match or "").split(",")]:
        return Response(status_code=304, headers=headers)
    following = None
    if len(queue.page) > limit:
        last = queue.page[limit - 1].offset
        following = _page_url(f"/queues/{quote(subscriber, safe='')}", last, limit)
        headers["Link"] = f'<{following}>; rel="next"'
    document = queue_document(queue, publisher.agent, following)
    document.entries = document.entries[:limit]
    return Response(document.model_dump_json(), 200, headers, "application/json")


@router.get("/queues/{subscriber}/errors", responses=documented(404, 503))
async def get_error_queue(
    request: Request,
    response: Response,
    subscriber: SubscriberName,
    _caller: Reader,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> ErrorQueueDocument:
    """Return the packages that a subscriber gave up on, oldest first."""
    queues = of(request).queues
    queues.subscriber(subscriber)
    page = queues.errors.page(subscriber, read_cursor(cursor), limit + 1)
    following = None
    if len(page) > limit:
        path = f"/queues/{quote(subscriber, safe='')}/errors"
        following = _page_url(path, page[limit - 1].offset, limit)
        response.headers["Link"] = f'<{following}>; rel="next"'
    return ErrorQueueDocument(
        subscriber=subscriber,
        length=queues.errors.count(subscriber),
        entries=[failed_document(failed) for failed in page[:limit]],
        next=following,
    )


@router.get("/subscribers", responses=documented(503))
async def list_subscribers(request: Request, _caller: Reader) -> SubscriberList:
    """List the subscribers of this publisher agent that announced themselves within a day."""
    publisher = of(request)
    queues = await publisher.queues.overview()
    return SubscriberList(
        agent=publisher.agent, subscribers=[subscriber_document(queue) for queue in queues]
    )


@router.get("/subscribers/{subscriber}", responses=documented(404, 503))
async def get_subscriber(
    request: Request, subscriber: SubscriberName, _caller: Reader
) -> SubscriberDocument:
    """Return one subscriber."""
    return subscriber_document(await of(request).queues.queue(subscriber))


def _page_url(path: str, behind: int, limit: int) -> str:
    return f"{path}?{urlencode({'cursor': write_cursor(behind), 'limit': limit})}"
