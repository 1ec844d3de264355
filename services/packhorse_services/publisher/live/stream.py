"""One client's stream: from the rings while it keeps up, from the journal when it is late."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from packhorse.errors import PackhorseError
from packhorse.runtime.streams import Life
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.hub import Hub
from packhorse_services.publisher.live.log import Gap
from packhorse_services.publisher.live.position import Position, Source
from packhorse_services.publisher.live.ring import Batch
from packhorse_services.publisher.live.states import StatesSeen
from packhorse_services.publisher.live.subscription import Subscription, Told, Wanted

logger = logging.getLogger(__name__)

RETRY_MS = 2_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a stream, in seconds."""

    life_s: float = 300.0
    position_s: float = 10.0
    """How often a client that gets no event learns how far it has come."""
    states_s: float = 1.0
    patience_s: float = 20.0
    """How long the journal may be away before the stream ends."""
    retry_s: float = 1.0


DEFAULT_PACE = Pace()


class EventStream:
    """Gives the blocks to send, until its life is over or the process ends."""

    def __init__(
        self, hub: Hub, wanted: Wanted, position: Position | None, pace: Pace = DEFAULT_PACE
    ) -> None:
        self._hub, self._wanted, self._pace = hub, wanted, pace
        self._subscription = Subscription(hub.logs, wanted, position)
        self._states = StatesSeen(wanted.subscriber)
        self._life = Life(pace.life_s)
        self._journal_away_since: float | None = None
        self._sent, self._sent_at = "", 0.0

    async def blocks(self) -> AsyncIterator[ServerSentEvent]:
        """Yield events as they come; the first block has only the position and `retry`."""
        self._note_sent()
        yield ServerSentEvent(id=self._sent, retry=RETRY_MS, comment="events follow")
        while not self._over():
            with self._hub.changes.subscribed() as news:
                before = self._subscription.id
                async for told in self._round():
                    self._note_sent()
                    yield ServerSentEvent(event=told.name, raw_data=told.data, id=told.id)
                    if self._hub.ended:
                        return
                if self._position_is_due():
                    self._note_sent()
                    yield ServerSentEvent(id=self._sent, comment="position")
                if self._subscription.id == before and not self._over():
                    await self._wait(news)

    async def _round(self) -> AsyncIterator[Told]:
        """Yield what there is, at most one batch of each log."""
        for source in self._subscription.sources():
            found = self._subscription.recent(source) or await self._from_journal(source)
            if found is not None:
                for told in self._subscription.tell(source, found):
                    yield told
        if EventType.SUBSCRIBER in self._wanted.types:
            for state in self._states.news(self._hub.states.now()):
                name, data = EventType.SUBSCRIBER.value, state.model_dump_json()
                yield Told(name, data, self._subscription.id)

    async def _from_journal(self, source: Source) -> Batch | Gap | None:
        try:
            found = await self._hub.read(source, self._subscription.cursor(source))
        except PackhorseError as error:
            logger.warning("a stream can't read the journal", extra={"error": str(error)})
            self._journal_away_since = self._journal_away_since or time.monotonic()
            return None
        self._journal_away_since = None
        return found

    async def _wait(self, news: asyncio.Event) -> None:
        seconds = self._pace.position_s
        if EventType.SUBSCRIBER in self._wanted.types:
            seconds = self._pace.states_s
        if self._journal_away_since is not None:
            seconds = self._pace.retry_s
        await self._life.wait(news, seconds)

    def _over(self) -> bool:
        away = self._journal_away_since
        gave_up = away is not None and time.monotonic() - away > self._pace.patience_s
        return self._hub.ended or gave_up or self._life.over

    def _position_is_due(self) -> bool:
        if self._subscription.id == self._sent:
            return False
        return time.monotonic() - self._sent_at >= self._pace.position_s

    def _note_sent(self) -> None:
        self._sent, self._sent_at = self._subscription.id, time.monotonic()
