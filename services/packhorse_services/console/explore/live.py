"""What happens now: the publisher's events, rendered as rows, as long as somebody looks."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, get_args

from fastapi import Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from packhorse.client.errors import ClientError
from packhorse.client.exchange import with_query
from packhorse.client.following import Block, EventKind, Following, StreamEvent, is_passing
from packhorse.runtime.feed import Life
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import rendered
from packhorse_services.console.frame.session import has_ended
from packhorse_services.console.frame.visit import PageVisit, PartVisit, Visit, page_router
from packhorse_services.console.parts import of

router = page_router()

_LIFE_S = 300.0
KINDS: tuple[EventKind, ...] = get_args(EventKind)
_Word = Annotated[str, Query(max_length=200)]
_Events = AsyncGenerator[StreamEvent, None]


@dataclass(frozen=True)
class LiveFilter:
    """Which events; empty: all of the first agent."""

    agent: _Word = ""
    kind: Literal["", "package", "status", "distributed", "subscriber"] = ""
    subscriber: _Word = ""

    @property
    def kinds(self) -> tuple[EventKind, ...]:
        """The kinds that are followed."""
        return (self.kind,) if self.kind else KINDS


Filter = Annotated[LiveFilter, Depends()]


class _PassedOn(Following):
    """A stream of which positions are passed on, too: they are events without a kind."""

    def took(self, block: Block) -> StreamEvent:
        return super().took(block) or StreamEvent("", block.id, None)


def _lost(error: ClientError, _wait_s: float) -> None:
    """End it: the browser says that it is not live, and comes back where that may help."""
    raise error


def _path(requested: LiveFilter) -> str:
    types = ",".join(requested.kinds)
    return with_query("/events", types=types, subscriber=requested.subscriber or None)


@router.get("/live")
async def show_live(visit: PageVisit, requested: Filter) -> Response:
    """Show the page; its script follows the events."""
    agent = visit.agent(requested.agent)
    return visit.page(
        "live.html",
        agent=agent,
        agents=visit.agents,
        kinds=KINDS,
        requested=requested,
        same=_same(visit, agent, requested),
    )


async def _opened(
    visit: PartVisit,
    requested: Filter,
    after: _Word = "",
    last_event_id: Annotated[str, Header(max_length=200)] = "",
) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
    """Take a place for a stream, and give it back when the browser goes."""
    agent = visit.agent(requested.agent)
    following = _PassedOn(_path(requested), after=last_event_id or after)
    following.waiting = _lost
    events = visit.publisher(agent).follow(following)
    streams = of(visit.request).streams
    with streams.place(visit.request.scope):
        async with aclosing(_rows(visit, events, agent)) as rows:
            yield rows


@router.get("/live/events", response_class=EventSourceResponse)
async def follow_live(
    rows: Annotated[AsyncIterator[ServerSentEvent], Depends(_opened)],
) -> AsyncIterator[ServerSentEvent]:
    """Pass the publisher's events on as rows of the page, until one of the two goes."""
    async for row in rows:
        yield row


async def _rows(visit: Visit, events: _Events, agent: str) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield a block for each event; the browser comes back with the last id after some minutes."""
    streams = of(visit.request).streams
    yield ServerSentEvent(retry=2_000, comment="events follow")
    life = Life(_LIFE_S)
    upcoming = asyncio.ensure_future(anext(events))
    try:
        while not (streams.ended or life.over or has_ended(visit.request)):
            with streams.changes.subscribed() as news:
                upcoming.add_done_callback(partial(_tell, news))
                if not upcoming.done():
                    await life.wait(news)
            if upcoming.done():
                yield _row(upcoming.result(), agent)
                upcoming = asyncio.ensure_future(anext(events))
    except ClientError as error:
        yield ServerSentEvent(event="away" if is_passing(error) else "refused", data=str(error))
    finally:
        upcoming.cancel()
        await asyncio.shield(_closed(upcoming, events))


async def _closed(upcoming: asyncio.Future[StreamEvent], events: _Events) -> None:
    """Give the publisher's stream back; shielded, as a request that ends is cancelled again."""
    await asyncio.wait((upcoming,))
    if not upcoming.cancelled():
        upcoming.exception()  # else the log calls it lost
    await events.aclose()


def _tell(news: asyncio.Event, _done: object) -> None:
    news.set()


def _row(event: StreamEvent, agent: str) -> ServerSentEvent:
    if not event.kind:
        return ServerSentEvent(event="position", id=event.id or None, data="")
    text = rendered(
        "live_row.html",
        kind=event.kind,
        agent=agent,
        one=event.data if isinstance(event.data, dict) else {},
        line=json.dumps({"event": event.kind, "id": event.id, "data": event.data}),
    )
    return ServerSentEvent(event="row", id=event.id or None, raw_data=text)


def _same(visit: Visit, agent: str, requested: LiveFilter) -> list[Same]:
    url, types = visit.publisher_url(agent), ",".join(requested.kinds)
    words = ["--types", types]
    words += ["--subscriber", requested.subscriber] if requested.subscriber else []
    sent = curl(f"{url}{_path(requested)}")
    return [same("These events", ["events", *words, "--server", url], sent)]
