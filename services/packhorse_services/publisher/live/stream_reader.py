"""Where one client is in each log, and which events it wants: no waiting, no I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from packhorse_services.publisher.live.agent_log import AgentLog, LogGap
from packhorse_services.publisher.live.event_id import (
    LogCursor,
    Position,
    write_position,
)
from packhorse_services.publisher.live.events import EventType, LiveEvent
from packhorse_services.publisher.live.recent_events import EventBatch

_AT_A_TIME = 200


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """What a client asks for. With a subscriber: only events about that one."""

    types: frozenset[EventType]
    subscriber: str | None = None

    def source(self, source: EventType) -> bool:
        """Return whether events of a log may be wanted; no package is about one subscriber."""
        if self.subscriber is not None and source is EventType.PACKAGE:
            return False
        return source in self.types

    def event(self, event: LiveEvent) -> bool:
        """Return whether an event of a wanted log is wanted."""
        return self.subscriber is None or self.subscriber in event.about


class StreamReader:
    """One client's way through the logs: each event of a log once, in the log's order.

    Events that are filtered out count as seen.
    """

    def __init__(
        self,
        logs: Mapping[EventType, AgentLog],
        wanted: StreamFilter,
        position: Position | None = None,
    ) -> None:
        self._logs, self.wanted = logs, wanted
        now = {source: log.recent.end() for source, log in logs.items()}
        self._cursors = {**now, **(position or {})}

    @property
    def id(self) -> str:
        """The position as the client gets it."""
        return write_position(self._cursors)

    def cursor(self, source: EventType) -> LogCursor:
        """Return how far the client has come in one log."""
        return self._cursors[source]

    def sources(self) -> Iterable[EventType]:
        """Return the logs to read, and pass by the others' newest events."""
        wanted = [source for source in self._logs if self.wanted.source(source)]
        for source in self._logs:
            if source not in wanted:
                self._cursors[source] = self._logs[source].recent.end()
        return wanted

    def recent(self, source: EventType) -> EventBatch | None:
        """Return what comes next in one log; None when only the journal has it."""
        return self._logs[source].recent.read(self._cursors[source], _AT_A_TIME)

    def as_events(self, source: EventType, found: EventBatch | LogGap) -> Iterator[ServerSentEvent]:
        """Yield what the client gets of `found`, which came from its cursor, and move on."""
        if isinstance(found, LogGap):
            self._cursors[source] = found.after
            gap = found.event.model_dump_json()
            yield ServerSentEvent(event="gap", raw_data=gap, id=self.id)
            return
        mark = found.after.mark
        for offset, event in found.events:
            self._cursors[source] = LogCursor(offset + 1, mark)
            if self.wanted.event(event):
                yield ServerSentEvent(event=event.type.value, raw_data=event.data, id=self.id)
        self._cursors[source] = found.after
