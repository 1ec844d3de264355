"""Threads that keep rings filled with what their logs get from now on."""

import logging
import threading
from collections.abc import Callable, Sequence

from packhorse.clock import Clock
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Reader, Record
from packhorse.runtime.lifecycle import Worker
from packhorse_services.publisher.live.log import EventLog

logger = logging.getLogger(__name__)

Take = Callable[[str, int, Sequence[Record], int], None]
"""Takes what a log holds from one offset up to another; the first argument is the log's mark."""

_POLL_S = 0.5
_RETRY_S = 1.0
_CHECK_S = 15.0


class Tail:
    """A component that follows the end of one log."""

    def __init__(self, log: EventLog, take: Take, clock: Clock) -> None:
        self._log, self._take, self._clock = log, take, clock
        self._worker = Worker(f"live-{log.kind}", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what the thread died of."""
        return self._worker.failure()

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._follow(stopping)
            except PackhorseError as error:
                extra = {"topic": self._log.topic, "error": str(error)}
                logger.warning("a tail was lost", extra=extra)
                self._clock.wait(stopping, _RETRY_S)

    def _follow(self, stopping: threading.Event) -> None:
        """Follow one log from its end, until it is another one.

        What came while nobody followed is not lost: the ring then begins later, and streams read
        the journal up to there.
        """
        partition, mark = self._log.where()
        start = self._log.bounds(partition).next
        with self._log.reader(start, partition) as reader:
            self._take(mark, start, (), start)
            checked = self._clock.monotonic()
            while not stopping.is_set():
                self._poll(reader, partition, mark)
                if self._clock.monotonic() - checked > _CHECK_S:
                    checked = self._clock.monotonic()
                    behind = reader.position(partition)
                    if self._log.where() != (partition, mark) or (
                        self._log.bounds(partition).next < behind
                    ):
                        return

    def _poll(self, reader: Reader, partition: int, mark: str) -> None:
        before = reader.position(partition)
        records = reader.poll(_POLL_S)
        behind = reader.position(partition)
        if behind != before:
            self._take(mark, before, records, behind)
