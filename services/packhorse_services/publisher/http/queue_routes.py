"""Reading queues and subscribers."""

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from packhorse.runtime.entity_tags import KnownTags, kept
from packhorse.runtime.paging import foreign_cursor, link_to, page_url, read_cursor, write_cursor
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import Action
from packhorse_services.publisher.distributions.schemas import Path as ContentPath
from packhorse_services.publisher.distributions.schemas import QueuedActionName
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import Reader, SubscriberName
from packhorse_services.publisher.queues.cache.filters import EntryFilter
from packhorse_services.publisher.queues.history.answering import QueueHistory, QueueLags, window_of
from packhorse_services.publisher.queues.schemas import (
    QueueDocument,
    QueueList,
    SubscriberDocument,
    SubscriberList,
    queue_document,
    queue_list,
    queue_url,
    subscriber_document,
)

router = APIRouter(route_class=StrictRoute, tags=["queues"])

MAX_PAGE = 1_000

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(max_length=100)]
PathPrefix = Annotated[
    ContentPath | None,
    Query(
        max_length=2048,
        description="Only packages with a path or deep path that is this one or lies below it",
    ),
]
OfAction = Annotated[QueuedActionName | None, Query(description="Only packages of this action")]


@router.get("/queues", responses=documented(503), response_model=QueueList)
async def list_queues(request: Request, _caller: Reader) -> Response:
    """List the queues of all subscribers, and the slowest; cheap enough to ask all the time."""
    publisher = of(request)
    shown = queue_list(await publisher.queues.overview(), publisher.agent)
    return Response(shown.model_dump_json(), media_type="application/json")


@dataclass(frozen=True)
class QueueQuery:
    """Which packages of a queue are asked for."""

    limit: int
    cursor: str | None
    path_prefix: str | None
    action: QueuedActionName | None

    def filter(self) -> EntryFilter:
        """Return what a package must be."""
        return EntryFilter(self.path_prefix, self.action and Action(self.action))

    def following(self, subscriber: str, behind: int) -> str:
        """Return the URL of the next page."""
        requested = {"path_prefix": self.path_prefix, "action": self.action}
        cursor = write_offset(behind)
        return page_url(queue_url(subscriber), cursor=cursor, limit=self.limit, **requested)


async def _queue_query(
    limit: Limit = 100,
    cursor: Cursor = None,
    path_prefix: PathPrefix = None,
    action: OfAction = None,
) -> QueueQuery:
    return QueueQuery(limit, cursor, path_prefix, action)


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
    requested: Annotated[QueueQuery, Depends(_queue_query)],
    known: KnownTags,
) -> Response:
    """Return the packages that a subscriber has still to import, oldest first."""
    publisher = of(request)
    queue = await publisher.queues.queue(
        subscriber,
        limit=requested.limit,
        skip_to=read_offset(requested.cursor) + 1,
        wanted=requested.filter(),
    )
    headers = kept(queue.tag, weak=True)
    if queue.tag in known:
        return Response(status_code=304, headers=headers)
    following = (
        None if queue.page.behind is None else requested.following(subscriber, queue.page.behind)
    )
    document = queue_document(queue, publisher.agent, following)
    headers |= link_to(following)
    return Response(document.model_dump_json(), 200, headers, "application/json")


@router.get("/queue-history", responses=documented(503), response_model=QueueLags)
async def list_lags(
    request: Request,
    _caller: Reader,
    points: Annotated[int, Query(ge=1, le=60, description="At most so many")] = 30,
) -> Response:
    """Return how far behind each subscriber was in the last hour: a sample is taken each minute."""
    shown = await of(request).histories.all(window_of(1, points))
    return Response(shown.model_dump_json(), media_type="application/json")


@router.get("/queues/{subscriber}/history", responses=documented(404, 503))
async def get_queue_history(
    request: Request,
    subscriber: SubscriberName,
    _caller: Reader,
    hours: Annotated[int, Query(ge=1, le=24)] = 1,
    points: Annotated[int, Query(ge=1, le=120, description="At most so many")] = 60,
) -> QueueHistory:
    """Return how a queue was in the last hours: a sample is taken each minute, and kept a day."""
    publisher = of(request)
    await publisher.known_subscribers.check(subscriber)
    return await publisher.histories.one(window_of(hours, points), subscriber)


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
    return subscriber_document(await of(request).queues.one(subscriber))


_BEHIND = re.compile(r"o([0-9]{1,18})")


def write_offset(offset: int) -> str:
    """Return the cursor of a page that begins behind `offset`."""
    return write_cursor(f"o{offset}")


def read_offset(cursor: str | None) -> int:
    """Return the offset that the page begins behind, -1 without a cursor. Raises `Problem` 422."""
    if cursor is None:
        return -1
    found = _BEHIND.fullmatch(read_cursor(cursor))
    if found is None:
        raise foreign_cursor()
    return int(found[1])
