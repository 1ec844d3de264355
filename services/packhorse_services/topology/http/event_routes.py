"""Following the topology, live."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel

from packhorse.runtime.openapi import event_stream
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse.topology.events import EventKind
from packhorse_services.topology.http.event_feed import TopologyEventStream, read_position
from packhorse_services.topology.http.parts import of
from packhorse_services.topology.http.routes import Reader
from packhorse_services.topology.http.schemas import GapNews, TopologyNews

router = APIRouter(route_class=StrictRoute, tags=["topology"])

_EVENTS: dict[str, type[BaseModel]] = {
    **{kind.value: TopologyNews for kind in EventKind},
    "gap": GapNews,
}


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
) -> AsyncIterator[TopologyEventStream]:
    """Take a place and begin where the client was. Raises `Problem`, `TooManyStreams`."""
    seen = read_position(last_event_id) if last_event_id else None
    feed = of(request).feed
    with feed.place(request.scope):
        yield TopologyEventStream(feed, seen)


@router.get(
    "/topology/events",
    response_class=EventSourceResponse,
    responses={200: event_stream(_EVENTS), **documented(429, 503)},
)
async def follow_topology(
    stream: Annotated[TopologyEventStream, Depends(open_stream)],
) -> AsyncIterator[ServerSentEvent]:
    """Follow the topology, as server-sent events.

    INIT comes first, once there is a view that holds; CHANGING comes before each CHANGED. A client
    that comes back gets what it has missed, or a `gap` and INIT where that is forgotten. A
    comment every 15 s keeps the connection.
    """
    async for block in stream.blocks():
        yield block
