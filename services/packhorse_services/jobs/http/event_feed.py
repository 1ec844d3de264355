"""Following the events: their documents, what all streams share, and one client's stream."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any, Literal

from fastapi.sse import ServerSentEvent
from pydantic import BaseModel, Field

from packhorse.db.connect import AWAY
from packhorse.db.transactions import Connect, writing
from packhorse.jobs.events.position import EventPosition, EventRound
from packhorse.jobs.events.reading import EventPage, position_now, read_page
from packhorse.jobs.names import matches
from packhorse.runtime.feed import EventStream, Streams, gap_block
from packhorse.runtime.metrics import JOBS_EVENT_STREAMS, report
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.threads import Threads
from packhorse.runtime.validation import StrictBody
from packhorse_services.jobs.http.fields import Document, Properties, Topic


class EventRequest(StrictBody):
    """An event for every instance."""

    topic: Topic = Field(description="Those below packhorse/ are the product's own")
    properties: Properties = Field(default={}, description="At most 64 KiB as JSON")


class EventDocument(Document):
    """Something that has happened."""

    number: int
    topic: str
    application: str = Field(description="The instance that it comes from")
    created_at: datetime
    properties: dict[str, Any]


class GapDocument(BaseModel):
    """Events behind the position that was sent were pruned; it goes on from now."""

    reason: Literal["PRUNED"] = "PRUNED"


_READERS = 4
_POLL_S = 1.0
_PAGE = 100


class JobEventHub(Streams):
    """A component. One thread polls for news while anybody follows; streams read for themselves.

    A hint makes it look at once; not every event comes with one, so it looks each second too.
    """

    def __init__(self, connect: Connect, *, max_streams: int) -> None:
        super().__init__(JOBS_EVENT_STREAMS, max_streams)
        report("packhorse_jobs_event_streams")
        self._connect = connect
        self._position: EventPosition | None = None
        self._readers = Threads("jobs-events", _READERS)
        self._polling = Periodic("jobs-news", _POLL_S, self._poll)

    def start(self) -> None:
        """Begin to poll for news."""
        self._polling.start()

    def stop(self, timeout: float) -> None:
        """Look no more, and end the streams that are left."""
        self.end_streams()
        self._polling.stop(timeout)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def failure(self) -> BaseException | None:
        """Return what the thread died of."""
        return self._polling.failure()

    def hear(self, _hint: str) -> None:
        """Look now: there may be events."""
        self._polling.kick()

    async def read(self, position: EventPosition) -> EventPage:
        """Read the next events in a thread. Raises `InvalidPosition`, `psycopg.Error`."""
        return await asyncio.wrap_future(self._readers.submit(self._read, position))

    async def now(self) -> EventPosition:
        """Return the position behind all that has been committed."""
        return await asyncio.wrap_future(self._readers.submit(self._now))

    def _poll(self) -> None:
        if not self.count:
            self._position = None
            return
        if self._position is None:
            self._position = self._now()  # whoever has come before this has read for itself
            self.changes.announce()
            return
        page = self._read(self._position)
        if page.events or page.gap:
            self._position = self._now()  # the streams read all that comes before
            self.changes.announce()
        else:
            self._position = page.position

    def _now(self) -> EventPosition:
        with writing(self._connect) as connection:
            return position_now(connection)

    def _read(self, position: EventPosition) -> EventPage:
        with writing(self._connect) as connection:
            return read_page(connection, position, most=_PAGE)


LONGEST_ID = 8_000
"""Characters of a position that a client sends back; a longer one is not sent to it."""


class JobEventStream(EventStream):
    """Ends too when the database is away; the client comes back, and then gets the error.

    Each event comes once, in the order in which they became visible. Who comes back with the last
    id goes on behind that one; more comes twice only where a position was too long to be sent.
    """

    def __init__(
        self,
        hub: JobEventHub,
        pattern: str,
        position: EventPosition,
        first: EventPage,
    ) -> None:
        super().__init__(hub)
        self._hub, self._pattern = hub, pattern
        self._seen, self._first = position, [first]
        self._gap_reported = ""
        self._away = False

    @classmethod
    async def opened(
        cls, hub: JobEventHub, pattern: str, position: EventPosition | None
    ) -> "JobEventStream":
        """Begin behind a position, or now. Raises `InvalidPosition`, `psycopg.Error`."""
        start = await hub.now() if position is None else position
        return cls(hub, pattern, start, await hub.read(start))

    async def _round(self) -> AsyncIterator[ServerSentEvent]:
        try:
            page = self._first.pop() if self._first else await self._hub.read(self._seen)
        except AWAY:
            self._away = True
            return
        for block in self._blocks_of(page):
            yield block
        self._seen, self._moved = page.position, page.more or page.gap

    def _blocks_of(self, page: EventPage) -> Iterator[ServerSentEvent]:
        if page.gap and self._gap_reported != self._seen.seen:
            self._gap_reported = self._seen.seen
            yield gap_block(GapDocument())
        reported = False
        for event, position in zip(page.events, positions(self._seen, page), strict=True):
            if matches(self._pattern, event.topic):
                data = EventDocument.model_validate(event).model_dump_json()
                yield ServerSentEvent(event="event", raw_data=data, id=_event_id(position))
                reported = event is page.events[-1]
        if page.events and not reported:
            yield ServerSentEvent(id=_event_id(page.position), comment="nothing for you")

    def _position(self) -> str | None:
        return _event_id(self._seen)

    def _over(self) -> bool:
        return self._away or super()._over()


def positions(before: EventPosition, page: EventPage) -> list[EventPosition]:
    """Return the position behind each event of a page that was read from `before`."""
    if not page.events:
        return []
    here = page.position.round or before.round
    upto = here.upto if here else page.position.seen
    last = here.last if here else page.events[-1].number
    between = [
        EventPosition(before.seen, EventRound(upto, event.number, last))
        for event in page.events[:-1]
    ]
    return [*between, page.position]


def _event_id(position: EventPosition) -> str | None:
    text = str(position)
    return text if len(text) <= LONGEST_ID else None
