"""Reads the package topic ahead of a subscription, bounded in packages and in bytes."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from packhorse.messaging.api import Reader, Record
from packhorse_services.subscriber.journal.arrivals import Arrival, arrival_of, decode_ahead

_POLL_S = 5.0
_RECORD_BYTES = 512
"""What a record costs beside its body, about."""
_BATCH = 64
"""Records that are decoded before the subscription is given them."""


@dataclass(frozen=True, slots=True)
class PrefetchLimits:
    """How far a subscription reads ahead; a package larger than `bytes` still comes, alone."""

    packages: int = 2048
    bytes: int = 16 * 1024**2


class Decoding:
    """Whether packages are decoded ahead in this process, by any of its subscriptions."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alone = self._running = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Decode nothing inside the block, which begins when what is being decoded is done.

        A package that kills the process as it is decoded is not counted as another one's attempt.
        """
        with self._changed:
            self._alone += 1
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1

    def begin(self) -> bool:
        """Return whether something may be decoded now; `end` is called after it."""
        with self._changed:
            self._running += not self._alone
            return not self._alone

    def end(self) -> None:
        """Say that it was decoded."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()


DECODING = Decoding()
"""One for the process: its death is that of all its subscriptions."""


class Prefetch:
    """A thread that owns a reader and fills a bounded buffer with a subscription's arrivals.

    Packages of other agents in a row are one arrival without a record. Bodies by reference stay
    in the blob store. When the reader fails the thread ends, and the buffer's taker gets it once
    it has taken what was read before.
    """

    def __init__(
        self,
        reader: Reader,
        agent: str,
        limits: PrefetchLimits,
        on_arrival: Callable[[], None],
    ) -> None:
        self._reader, self._agent, self._limits = reader, agent, limits
        self._on_arrival = on_arrival
        self._changed = threading.Condition()
        self._buffer: deque[Arrival] = deque()
        self._bytes = 0
        self._error: Exception | None = None
        self._closing = self._decodes = False
        self._thread = threading.Thread(target=self._run, name=f"prefetch {agent}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def decode(self) -> None:
        """Decode from now on what is read, while the database is busy with what was taken.

        Not before the subscription has passed a package: one that kills the worker as it is decoded
        would else do so at every start, before anything is counted (R10).
        """
        self._decodes = True

    def take(self, packages: int, size: int) -> list[Arrival]:
        """Return what is there, in order, at most so many and about so many bytes.

        Raises what the reader has raised once the buffer is empty.
        """
        taken: list[Arrival] = []
        with self._changed:
            if self._error is not None and not self._buffer:
                raise self._error
            while self._buffer and len(taken) < packages and size > 0:
                arrival = self._buffer.popleft()
                self._bytes -= _cost(arrival)
                size -= arrival.memory
                taken.append(arrival)
            self._changed.notify_all()
        return taken

    def close(self, timeout: float = 0.0) -> None:
        """End the thread, which closes the reader, and wait for it up to `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._reader.wake()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            with self._reader:
                while room := self._wait_for_room():
                    packages, size = room
                    records = self._reader.poll(_POLL_S, max_records=packages, max_bytes=size)
                    if records:
                        self._put(records)
        except Exception as error:
            with self._changed:
                self._error = error
        self._on_arrival()

    def _wait_for_room(self) -> tuple[int, int] | None:
        """Return how much may be read now, or None when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._has_room())
            if self._closing:
                return None
            return self._limits.packages - len(self._buffer), self._limits.bytes - self._bytes

    def _has_room(self) -> bool:
        """Return whether half of it is free: many small polls of a journal far away are slow."""
        limits = self._limits
        return 2 * len(self._buffer) <= limits.packages and 2 * self._bytes <= limits.bytes

    def _put(self, records: Sequence[Record]) -> None:
        for start in range(0, len(records), _BATCH):
            batch = [arrival_of(record, self._agent) for record in records[start : start + _BATCH]]
            if self._decodes and DECODING.begin():
                try:
                    self._decode(batch)
                finally:
                    DECODING.end()
            with self._changed:
                for arrival in batch:
                    self._add(arrival)
            self._on_arrival()

    def _decode(self, batch: Sequence[Arrival]) -> None:
        room = self._limits.bytes - self._bytes
        for arrival in batch:
            if room <= 0:
                return
            decode_ahead(arrival, self._agent)
            room -= _cost(arrival)

    def _add(self, arrival: Arrival) -> None:
        last = self._buffer[-1] if self._buffer else None
        if arrival.record is None and last is not None and last.record is None:
            self._buffer[-1] = arrival
            return
        self._buffer.append(arrival)
        self._bytes += _cost(arrival)


def _cost(arrival: Arrival) -> int:
    return arrival.memory + _RECORD_BYTES
