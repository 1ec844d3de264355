"""One client's stream of events: where it is, what it wants, and the blocks that it gets."""

from collections.abc import AsyncIterator, Iterator

import psycopg
from fastapi.sse import ServerSentEvent

from packhorse.jobs.events.position import Position, Round
from packhorse.jobs.events.reading import Page
from packhorse.jobs.names import matches
from packhorse.runtime.streams import Life
from packhorse_services.jobs.event_schemas import GapDocument, event_document
from packhorse_services.jobs.hub import Hub

RETRY_MS = 2_000
LONGEST_ID = 8_000
"""Characters of a position that a client sends back; a longer one is not told to it."""
_LIFE_S = 300.0


class EventStream:
    """Gives the blocks to send, until its life is over, the process ends or no database is there.

    Each event comes once, in the order in which they became visible. Who comes back with the last
    id goes on behind that one; more comes twice only where a position was too long to be told.
    """

    def __init__(
        self, hub: Hub, pattern: str, position: Position, first: Page, *, life_s: float = _LIFE_S
    ) -> None:
        self._hub, self._pattern = hub, pattern
        self._position, self._page = position, first
        self._gap_told = ""
        self._life = Life(life_s)

    @classmethod
    async def opened(cls, hub: Hub, pattern: str, position: Position | None) -> "EventStream":
        """Begin behind a position, or now. Raises `InvalidPosition`, `psycopg.Error`."""
        start = await hub.now() if position is None else position
        return cls(hub, pattern, start, await hub.read(start))

    async def blocks(self) -> AsyncIterator[ServerSentEvent]:
        """Yield events as they come; the first block has only `retry` and the position."""
        yield ServerSentEvent(retry=RETRY_MS, comment="events follow", id=_told(self._position))
        while True:
            for block in self._blocks_of(self._page):
                yield block
                if self._hub.ended:
                    return
            self._position = self._page.position
            try:
                if not await self._find_more():
                    return
            except psycopg.OperationalError:
                return  # the client comes back, and is then told that the database is away

    async def _find_more(self) -> bool:
        """Read the next page, once there is one; false when it is over."""
        while not self._over():
            with self._hub.changes.subscribed() as change:
                self._page = await self._hub.read(self._position)
                if self._page.events or self._page.gap or self._page.more:
                    return True
                self._position = self._page.position
                if not self._over():
                    await self._life.wait(change)
        return False

    def _blocks_of(self, page: Page) -> Iterator[ServerSentEvent]:
        if page.gap and self._gap_told != self._position.seen:
            self._gap_told = self._position.seen
            yield ServerSentEvent(event="gap", raw_data=GapDocument().model_dump_json())
        told = False
        for event, position in zip(page.events, positions(self._position, page), strict=True):
            if matches(self._pattern, event.topic):
                data = event_document(event).model_dump_json()
                yield ServerSentEvent(event="event", raw_data=data, id=_told(position))
                told = event is page.events[-1]
        if page.events and not told:
            yield ServerSentEvent(id=_told(page.position), comment="nothing for you")

    def _over(self) -> bool:
        return self._hub.ended or self._life.over


def positions(before: Position, page: Page) -> list[Position]:
    """Return the position behind each event of a page that was read from `before`."""
    if not page.events:
        return []
    here = page.position.round or before.round
    upto = here.upto if here else page.position.seen
    last = here.last if here else page.events[-1].number
    between = [Position(before.seen, Round(upto, event.number, last)) for event in page.events[:-1]]
    return [*between, page.position]


def _told(position: Position) -> str | None:
    text = str(position)
    return text if len(text) <= LONGEST_ID else None
