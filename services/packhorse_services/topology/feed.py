"""The newest events of the topology, in memory, for all clients that follow them."""

import secrets
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from packhorse.clock import Clock
from packhorse.runtime.metrics import TOPOLOGY_EVENT_STREAMS
from packhorse.runtime.streams import Streams
from packhorse.topology.diff import TopologyDiff
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse_services.topology.schemas import (
    LeaderChangeDocument,
    TopologyNews,
    topology_document,
)

_EVENTS = 500
_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Told:
    """An event as it is sent; `number` counts the events of this process from 1."""

    name: str
    data: str
    number: int


class Feed(Streams):
    """A listener of the topology. One thread fills it, any reads.

    A client that is too slow falls out and is told a gap, so nobody waits for it, and the memory
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
        self._kept: deque[Told] = deque()
        self._size = self._number = 0
        self._init = ""

    def hear(self, event: TopologyEvent) -> None:
        """Take in what the topology tells; called by one thread, in order."""
        data = self._document(event).model_dump_json()
        with self._lock:
            self._number += 1
            self._kept.append(Told(event.kind.value, data, self._number))
            self._size += len(data)
            while len(self._kept) > self._max_events or (
                self._size > self._max_size and len(self._kept) > 1
            ):
                self._size -= len(self._kept.popleft().data)
            self._init = data if event.new is not None else ""
        self.changes.announce()

    def first(self) -> Told | None:
        """Return the INIT of who comes now; None while the topology is changing or unknown."""
        with self._lock:
            return Told(EventKind.INIT, self._init, self._number) if self._init else None

    def after(self, number: int) -> Sequence[Told] | None:
        """Return the events behind one; None when not all of them are here."""
        with self._lock:
            oldest = self._kept[0].number if self._kept else self._number + 1
            if not oldest - 1 <= number <= self._number:
                return None
            return [told for told in self._kept if told.number > number]

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
