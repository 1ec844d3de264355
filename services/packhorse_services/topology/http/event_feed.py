"""The newest events of the topology, in memory, and one client's stream of them."""

import re
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi.sse import ServerSentEvent

from packhorse.clock import Clock
from packhorse.runtime.feed import EventStream, Streams, unknown_event_id
from packhorse.runtime.metrics import TOPOLOGY_EVENT_STREAMS
from packhorse.topology.diff import TopologyDiff
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse_services.topology.http.schemas import (
    ChangeDocument,
    GapNews,
    LeaderChangeDocument,
    TopologyNews,
    change_document,
    topology_document,
)

_EVENTS = 500
_BYTES = 16 * 1024 * 1024
_CHANGES = 100


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event as it is sent; `number` counts the events of this process from 1."""

    name: str
    data: str
    number: int


class Feed(Streams):
    """A listener of the topology. One thread fills it, any reads.

    A client that is too slow falls out and gets a gap, so nobody waits for it, and the memory
    is bounded however many there are.
    """

    def __init__(
        self,
        local_instance: str,
        clock: Clock,
        *,
        max_streams: int,
        events: int = _EVENTS,
        size: int = _BYTES,
    ) -> None:
        super().__init__(TOPOLOGY_EVENT_STREAMS, max_streams)
        self.run = secrets.token_hex(4)
        """Names this process in the ids of its events."""
        self._local_instance, self._clock = local_instance, clock
        self._max_events, self._max_size = events, size
        self._lock = threading.Lock()
        self._kept: deque[NumberedEvent] = deque()
        self._changes: deque[ChangeDocument] = deque(maxlen=_CHANGES)
        self._size = self._number = 0
        self._init = ""

    def hear(self, event: TopologyEvent) -> None:
        """Take in the events of the topology; called by one thread, in order."""
        data = self._document(event).model_dump_json()
        change = change_document(event, self._clock.wall_ms())
        with self._lock:
            self._changes.append(change)
            self._number += 1
            self._kept.append(NumberedEvent(event.kind.value, data, self._number))
            self._size += len(data)
            while len(self._kept) > self._max_events or (
                self._size > self._max_size and len(self._kept) > 1
            ):
                self._size -= len(self._kept.popleft().data)
            self._init = data if event.new is not None else ""
        self.changes.announce()

    def first(self) -> NumberedEvent | None:
        """Return the INIT of who comes now; None while the topology is changing or unknown."""
        with self._lock:
            return NumberedEvent(EventKind.INIT, self._init, self._number) if self._init else None

    def history(self) -> list[ChangeDocument]:
        """Return the last hundred changes that it heard, the newest first.

        Each has the time of hearing, and changes that follow each other at once may be one.
        """
        with self._lock:
            return list(reversed(self._changes))

    def after(self, number: int) -> Sequence[NumberedEvent] | None:
        """Return the events behind one; None when not all of them are here."""
        with self._lock:
            oldest = self._kept[0].number if self._kept else self._number + 1
            if not oldest - 1 <= number <= self._number:
                return None
            return [reported for reported in self._kept if reported.number > number]

    def _document(self, event: TopologyEvent) -> TopologyNews:
        news = TopologyNews(
            time=datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC), topology=None
        )
        if event.new is None:
            return news
        news.topology = topology_document(event.new, self._local_instance, current=True)
        if event.old is not None:
            diff = TopologyDiff(event.old, event.new)
            news.added = [one.id for one in diff.added()]
            news.removed = [one.id for one in diff.removed()]
            news.changed = [one.instance.id for one in diff.property_changes]
            news.leaders = [
                LeaderChangeDocument(cluster_id=one.cluster_id, old=one.old, new=one.new)
                for one in diff.leader_changes
            ]
        return news


_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The last event that a client has seen, and the process that numbered it."""

    run: str
    number: int

    def __str__(self) -> str:
        """Return it as the id of an event."""
        return f"{self.run}-{self.number}"


def read_position(text: str) -> StreamPosition:
    """Return the position that a client sends back. Raises `Problem` 422."""
    found = _ID.fullmatch(text)
    if found is None:
        raise unknown_event_id()
    return StreamPosition(found[1], int(found[2]))


class TopologyFollower:
    """Where one client is: no waiting, no I/O.

    A newcomer gets INIT. Who comes back gets what it has missed; where that is not known
    any more, a gap, and INIT again as soon as there is a view that holds.
    """

    def __init__(self, feed: Feed, seen: StreamPosition | None) -> None:
        self._feed = feed
        self._number: int | None = None
        self._gap: GapNews | None = None
        if seen is not None and seen.run == feed.run:
            self._number = seen.number
        elif seen is not None:
            self._gap = GapNews(reason="ANOTHER_PROCESS")

    def news(self) -> Sequence[NumberedEvent]:
        """Return what the client has to hear now, and count it as heard."""
        missed = None if self._number is None else self._feed.after(self._number)
        if missed is None and self._number is not None:
            self._gap, self._number = GapNews(reason="FORGOTTEN"), None
        reported = list(missed or [])
        if self._gap is not None:
            reported.append(NumberedEvent("gap", self._gap.model_dump_json(), 0))
            self._gap = None
        if self._number is None and (first := self._feed.first()) is not None:
            reported.append(first)
        for one in reported:
            self._number = one.number or self._number
        return reported


class TopologyEventStream(EventStream):
    """Sends a client what its follower finds in the feed."""

    def __init__(self, feed: Feed, seen: StreamPosition | None) -> None:
        super().__init__(feed)
        self._feed, self._follower = feed, TopologyFollower(feed, seen)

    async def _round(self) -> AsyncIterator[ServerSentEvent]:
        for one in self._follower.news():
            id_ = str(StreamPosition(self._feed.run, one.number)) if one.number else None
            yield ServerSentEvent(event=one.name, raw_data=one.data, id=id_)
