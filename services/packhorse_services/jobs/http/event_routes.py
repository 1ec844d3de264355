"""Events over HTTP: send one to every instance, and follow what happens."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from psycopg import Connection

from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.position import parse_position
from packhorse.runtime import audit
from packhorse.runtime.idempotency_key import IdempotencyKey
from packhorse.runtime.openapi import event_stream
from packhorse.runtime.problems import documented
from packhorse.runtime.validation import StrictRoute
from packhorse_services.jobs.http import request_keys
from packhorse_services.jobs.http.event_feed import (
    LONGEST_ID,
    EventDocument,
    EventRequest,
    GapDocument,
    JobEventStream,
)
from packhorse_services.jobs.http.fields import (
    Operator,
    Pattern,
    Reader,
    require_own_event,
)
from packhorse_services.jobs.http.parts import of
from packhorse_services.jobs.http.request_keys import request_key

router = APIRouter(route_class=StrictRoute, tags=["events"])


@router.post(
    "/events",
    status_code=202,
    responses=documented(400, 413, 415, 503),
    response_class=Response,
    response_model=None,
)
async def send_event(
    request: Request,
    caller: Operator,
    body: EventRequest,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send an event to every instance, those that are away for a while included.

    It comes from the instance that answers. Sent again with its `Idempotency-Key` within a day it
    has no second effect.
    """
    audit.note(request, topic=body.topic)
    require_own_event(body.topic)
    key = request_key(caller.name, idempotency_key, "POST /events", body)
    parts = of(request)
    event = NewEvent(body.topic, parts.discovery.instance_id, body.properties, echo=True)

    def send(connection: Connection) -> None:
        if key is None or request_keys.take(connection, key) is None:
            record(connection, [event])

    await parts.ask(send, act=False)
    return Response(status_code=202)


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
) -> AsyncIterator[JobEventStream]:
    """Take a place and begin where the client was.

    Raises `InvalidPosition`, `TooManyStreams`, `StreamsEnded`.
    """
    position = parse_position(last_event_id) if last_event_id else None
    hub = of(request).hub
    with hub.place(request.scope):
        yield await JobEventStream.opened(hub, topic, position)


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={
        200: event_stream({"event": EventDocument, "gap": GapDocument}),
        **documented(429, 503),
    },
)
async def follow_events(
    stream: Annotated[JobEventStream, Depends(open_stream)],
) -> AsyncIterator[ServerSentEvent]:
    """Follow the events of the cluster, as server-sent events.

    What becomes of jobs is reported on the topics `packhorse/job/*`. A comment every 15 s keeps the
    connection; a block without data only gives the position.
    """
    async for block in stream.blocks():
        yield block
