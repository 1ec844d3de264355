"""Events over HTTP: send one to every instance, and follow what happens."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from psycopg import Connection

from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.position import parse_position
from packhorse.runtime.openapi import event_kind, event_stream
from packhorse.runtime.problems import Problem, documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs import request_keys
from packhorse_services.jobs.event_schemas import EventDocument, EventRequest, GapDocument
from packhorse_services.jobs.fields import IdempotencyKey, Operator, Pattern, Reader
from packhorse_services.jobs.parts import of
from packhorse_services.jobs.request_keys import request_key
from packhorse_services.jobs.stream import LONGEST_ID, EventStream

router = APIRouter(route_class=StrictRoute, tags=["events"])

RESERVED = "packhorse/"
"""What topics begin with that only the product's own programs send."""


@router.post("/events", status_code=202, responses=documented(400, 413, 415, 503))
async def send_event(
    request: Request,
    caller: Operator,
    body: EventRequest,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Send an event to every instance, those that are away for a while included.

    It comes from the instance that answers. Sent again with its `Idempotency-Key` within a day it
    has no second effect.
    """
    if body.topic.startswith(RESERVED):
        wrong = {"pointer": "#/topic", "detail": f"may not begin with {RESERVED}"}
        raise Problem(422, detail="such events are the product's own", errors=[wrong])
    key = request_key(caller.name, idempotency_key, "POST /events", body)
    parts = of(request)
    event = NewEvent(body.topic, parts.discovery.instance_id, body.properties, echo=True)

    def send(connection: Connection) -> None:
        if key is None or request_keys.take(connection, key) is None:
            record(connection, [event])

    await parts.ask(send)


def _stream_documented() -> dict[str, Any]:
    return event_stream(
        [
            event_kind("event", EventDocument.model_json_schema(), always=False),
            event_kind("gap", GapDocument.model_json_schema(), has_id=False),
        ]
    )


async def open_stream(
    request: Request,
    _caller: Reader,
    topic: Annotated[Pattern, Query(description="A topic, or a pattern such as images/**")] = "**",
    last_event_id: Annotated[
        str | None,
        Header(
            max_length=LONGEST_ID,
            description="The id of the last event seen, from any replica. Without: from now on",
        ),
    ] = None,
) -> AsyncIterator[EventStream]:
    """Take a place and begin where the client was.

    Raises `InvalidPosition`, `TooManyStreams`, `StreamsEnded`.
    """
    position = parse_position(last_event_id) if last_event_id else None
    hub = of(request).hub
    with hub.place():
        yield await EventStream.opened(hub, topic, position)


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={200: _stream_documented(), **documented(429, 503)},
)
async def follow_events(
    stream: Annotated[EventStream, Depends(open_stream)],
) -> AsyncIterator[ServerSentEvent]:
    """Follow the events of the cluster, as server-sent events.

    What becomes of jobs is told by the topics `packhorse/job/*`. A comment every 15 s keeps the
    connection; a block without data only tells the position.
    """
    async for block in stream.blocks():
        yield block
