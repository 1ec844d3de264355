"""A thread that hands every record of a small topic to whoever keeps its meaning in memory."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from packhorse.clock import Clock
from packhorse.errors import Transient
from packhorse.messaging.api import (
    Journal,
    LogEnd,
    OffsetOutOfRange,
    Position,
    Reader,
    Record,
    TopicMissing,
)
from packhorse.messaging.reading import Polled, keep_following
from packhorse.runtime.lifecycle import Worker, WorkerComponent

Handler = Callable[[Record, bool], None]
"""Takes a record, and whether it is fresh: false for those that were there before we came."""

_POLL_S = 5.0


class NotCaughtUp(Transient):
    """The topic has not been read to its end yet."""


class TopicFollower(WorkerComponent):
    """A component that reads all partitions of a topic from the oldest record on."""

    def __init__(self, journal: Journal, topic: str, handler: Handler, clock: Clock) -> None:
        self._journal, self._topic, self._handler, self._clock = journal, topic, handler, clock
        self._positions: dict[int, Position] = {}
        self._caught_up = threading.Event()
        self._polled = Polled()
        self._worker = Worker(f"follow-{topic}", self._run, wake=self._polled.wake)

    def check(self) -> None:
        """Raise `NotCaughtUp` until the topic was read to its end once."""
        if not self._caught_up.is_set():
            raise NotCaughtUp(f"topic {self._topic} is still being read")

    def _run(self, stopping: threading.Event) -> None:
        steps = partial(self._follow, stopping)
        what = f"the topic {self._topic}"
        keep_following(stopping, self._clock, what, steps)

    def _follow(self, stopping: threading.Event) -> Iterator[None]:
        try:
            ends = self._ends()
            opened = self._journal.reader(self._topic, dict(self._positions))
            with self._polled.polling(opened) as reader:
                yield from self._read(reader, ends, stopping)
        except OffsetOutOfRange as error:
            self._positions[error.partition] = LogEnd.OLDEST
        except TopicMissing:
            self._positions.clear()
            raise

    def _ends(self) -> list[int]:
        """Return where each partition ends now: an empty poll would be no proof of it."""
        return [
            self._journal.bounds(self._topic, number).next
            for number in range(self._journal.partitions(self._topic))
        ]

    def _read(
        self, reader: Reader, ends: Sequence[int], stopping: threading.Event
    ) -> Iterator[None]:
        while not stopping.is_set():
            if not self._caught_up.is_set() and all(
                reader.position(number) >= end for number, end in enumerate(ends)
            ):
                self._caught_up.set()
            for record in reader.poll(_POLL_S):
                self._handler(record, self._caught_up.is_set())
                self._positions[record.partition] = record.offset + 1
            yield
