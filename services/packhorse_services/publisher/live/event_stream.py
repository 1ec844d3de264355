"""One client's stream: from the recent events while it keeps up, else from the journal."""

import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from packhorse.errors import PackhorseError
from packhorse.runtime.feed import LIFE_S, EventStream
from packhorse_services.publisher.live.agent_log import LogGap
from packhorse_services.publisher.live.event_hub import EventHub
from packhorse_services.publisher.live.event_id import Position
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.recent_events import EventBatch
from packhorse_services.publisher.live.stream_reader import StreamFilter, StreamReader
from packhorse_services.publisher.live.subscriber_states import StatesSeen

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a stream, in seconds."""

    life_s: float = LIFE_S
    position_s: float = 10.0
    """How often a client that gets no event learns how far it has come."""
    states_s: float = 1.0
    patience_s: float = 20.0
    """How long the journal may be away before the stream ends."""
    retry_s: float = 1.0


DEFAULT_PACE = Pace()


class PublisherEventStream(EventStream):
    """Sends a client packages, statuses and events; ends too when the journal stays away."""

    def __init__(
        self,
        hub: EventHub,
        wanted: StreamFilter,
        position: Position | None,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        super().__init__(hub, pace.life_s)
        self._hub, self._wanted, self._pace = hub, wanted, pace
        self._reader = StreamReader(hub.logs, wanted, position)
        self._states = StatesSeen(wanted.subscriber)
        self._journal_away_since: float | None = None
        self._sent, self._sent_at = self._reader.id, time.monotonic()

    async def _round(self) -> AsyncIterator[ServerSentEvent]:
        """Yield what there is, at most one batch of each log, and how far that is."""
        before = self._reader.id
        async for reported in self._events():
            self._note_sent()
            yield reported
        if self._position_is_due():
            self._note_sent()
            yield ServerSentEvent(id=self._sent, comment="position")
        self._moved = self._reader.id != before

    async def _events(self) -> AsyncIterator[ServerSentEvent]:
        for source in self._reader.sources():
            found = self._reader.recent(source) or await self._from_journal(source)
            if found is not None:
                for reported in self._reader.as_events(source, found):
                    yield reported
        if EventType.SUBSCRIBER in self._wanted.types:
            for state in self._states.news(self._hub.states.now()):
                name, data = EventType.SUBSCRIBER.value, state.model_dump_json()
                yield ServerSentEvent(event=name, raw_data=data, id=self._reader.id)

    async def _from_journal(self, source: EventType) -> EventBatch | LogGap | None:
        try:
            found = await self._hub.read(source, self._reader.cursor(source))
        except PackhorseError as error:
            logger.warning("a stream can't read the journal", extra={"error": str(error)})
            self._journal_away_since = self._journal_away_since or time.monotonic()
            return None
        self._journal_away_since = None
        return found

    def _position(self) -> str:
        return self._sent

    def _pause_s(self) -> float:
        if self._journal_away_since is not None:
            return self._pace.retry_s
        states = EventType.SUBSCRIBER in self._wanted.types
        return self._pace.states_s if states else self._pace.position_s

    def _over(self) -> bool:
        away = self._journal_away_since
        gave_up = away is not None and time.monotonic() - away > self._pace.patience_s
        return gave_up or super()._over()

    def _position_is_due(self) -> bool:
        if self._reader.id == self._sent:
            return False
        return time.monotonic() - self._sent_at >= self._pace.position_s

    def _note_sent(self) -> None:
        self._sent, self._sent_at = self._reader.id, time.monotonic()
