"""Following what happens, live."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from packhorse.runtime.openapi import event_stream
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.publisher.http.collaborators import of
from packhorse_services.publisher.http.fields import Reader, StorableName
from packhorse_services.publisher.live.event_id import read_position
from packhorse_services.publisher.live.event_stream import PublisherEventStream
from packhorse_services.publisher.live.events import EVENTS, EventType
from packhorse_services.publisher.live.stream_reader import StreamFilter

router = APIRouter(route_class=StrictRoute, tags=["events"])


_DEFAULT_TYPES = "package,status,distributed"


async def open_stream(
    request: Request,
    _caller: Reader,
    types: Annotated[
        str,
        Query(max_length=100, description="Some of package, status, distributed, subscriber"),
    ] = _DEFAULT_TYPES,
    subscriber: Annotated[
        StorableName | None,
        Query(min_length=1, max_length=200, description="Only what is about this one: no package"),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            max_length=200,
            description="The id of the last event seen, from any replica. Without: from now on",
        ),
    ] = None,
) -> AsyncIterator[PublisherEventStream]:
    """Take a place and begin where the client was.

    Raises `Problem`, `UnknownSubscriber`, `TooManyStreams`.
    """
    wanted = StreamFilter(_types(types), subscriber)
    if subscriber is not None:
        await of(request).known_subscribers.check(subscriber)
    position = read_position(last_event_id) if last_event_id else None
    hub = of(request).hub
    with hub.place(request.scope):
        yield PublisherEventStream(hub, wanted, position)


def _types(text: str) -> frozenset[EventType]:
    try:
        return frozenset(EventType(name.strip()) for name in text.split(","))
    except ValueError:
        known = ", ".join(EventType)
        wrong = {"pointer": "query/types", "detail": f"some of {known}, with commas"}
        raise Problem(422, detail="an unknown type of event", errors=[wrong]) from None


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={200: event_stream(EVENTS, "publisher"), **documented(404, 429, 503)},
)
async def follow_events(
    stream: Annotated[PublisherEventStream, Depends(open_stream)],
) -> AsyncIterator[ServerSentEvent]:
    """Follow what happens to this agent's packages, as server-sent events.

    Each event of a log comes once, in the log's order; between logs there is no order. A comment
    every 15 s keeps the connection; a block without data only gives the position.
    """
    async for block in stream.blocks():
        yield block
