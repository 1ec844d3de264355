"""Following the topology, live."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from packhorse.runtime.auth import Principal, Scope, require
from packhorse.runtime.openapi import event_kind, event_stream
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse.topology.events import EventKind
from packhorse_services.topology.parts import of
from packhorse_services.topology.schemas import GapNews, TopologyNews
from packhorse_services.topology.stream import EventStream, read_position

router = APIRouter(route_class=StrictRoute, tags=["topology"])

Reader = Annotated[Principal, Depends(require(Scope.QUEUES_READ))]


def _stream_documented() -> dict[str, Any]:
    news = TopologyNews.model_json_schema()
    kinds = [event_kind(kind.value, news) for kind in EventKind]
    return event_stream([*kinds, event_kind("gap", GapNews.model_json_schema(), has_id=False)])


async def open_stream(
    request: Request,
    _caller: Reader,
    last_event_id: Annotated[
        str | None,
        Header(
            max_length=100,
            description="The id of the last event seen; without, it begins with INIT",
        ),
    ] = None,
) -> AsyncIterator[EventStream]:
    """Take a place and begin where the client was. Raises `Problem`, `TooManyStreams`."""
    seen = read_position(last_event_id) if last_event_id else None
    feed = of(request).feed
    with feed.place():
        yield EventStream(feed, seen)


@router.get(
    "/topology/events",
    response_class=EventSourceResponse,
    responses={200: _stream_documented(), **documented(429, 503)},
)
async def follow_topology(
    stream: Annotated[EventStream, Depends(open_stream)],
) -> AsyncIterator[ServerSentEvent]:
    """Follow the topology, as server-sent events.

    INIT comes first, once there is a view that holds; CHANGING comes before each CHANGED. A client
    that comes back is told what it has missed, or a `gap` and INIT where that is forgotten. A
    comment every 15 s keeps the connection.
    """
    async for block in stream.blocks():
        yield block
