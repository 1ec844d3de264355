"""Reading a partition to an end that was asked for before, and following it from there on.

Every loop that polls a reader is here, but for those that say why they are not (ADR 0055).
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from packhorse.clock import Clock
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal, JournalUnavailable, OffsetOutOfRange, Reader, Record
from packhorse.runtime.outage import Outage

T = TypeVar("T")

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_FOLLOW_S = 5.0
_PATIENCE_S = 20.0
_CHECK_S = 15.0
_RETRY_S = 1.0


class Polled:
    """The reader that a thread polls now, so that others can end its wait."""

    def __init__(self) -> None:
        self._reader: Reader | None = None

    @contextmanager
    def polling(self, opened: Reader) -> Iterator[Reader]:
        """Use a reader, which is closed in the end."""
        with opened as reader:
            self._reader = reader
            try:
                yield reader
            finally:
                self._reader = None

    def wake(self) -> None:
        """Let the poll that waits, if one does, return. Set first what its thread then looks at."""
        reader = self._reader
        if reader is not None:
            reader.wake()


class LogCut(JournalUnavailable):
    """What was to be read next has left the log while it was read."""


def _nothing() -> None:
    pass


def read_to(
    reader: Reader,
    end: int,
    *,
    partition: int = 0,
    max_records: int = 500,
    patience_s: float = _PATIENCE_S,
    meanwhile: Callable[[], None] = _nothing,
) -> Iterator[Sequence[Record]]:
    """Yield what a reader gives, until its position has reached `end`.

    `end` is one that the log has had, such as its `Bounds.next`: an empty poll proves nothing. A
    batch may be empty, when only the position moved, and the last one may go beyond `end`.
    `meanwhile` is called before each poll, of which there are some in a second; what it raises
    ends the reading. Raises `LogCut`, and `JournalUnavailable` after `patience_s` without progress.
    """
    patience = time.monotonic() + patience_s
    position = reader.position(partition)
    while position < end:
        meanwhile()
        before = position
        records = _poll(reader, max_records)
        position = reader.position(partition)
        if records or position != before:
            yield records
            patience = time.monotonic() + patience_s
        elif time.monotonic() >= patience:
            raise JournalUnavailable("the journal's end was not reached in time; try again later")


def _poll(reader: Reader, max_records: int) -> Sequence[Record]:
    try:
        return reader.poll(_POLL_S, max_records=max_records)
    except OffsetOutOfRange as error:  # retention went by while we read
        raise LogCut("the log was cut while it was read; try again") from error


def read_range(
    journal: Journal,
    topic: str,
    start: int,
    end: int,
    partition: int = 0,
    *,
    meanwhile: Callable[[], None] = _nothing,
) -> Generator[Record, None, None]:
    """Yield the records from `start` up to, not including, `end`, without their values.

    `start` must be in the log, and the log must reach `end`. Raises what `read_to` raises.
    """
    if start >= end:
        return
    with journal.reader(topic, start, partition=partition, values=False) as reader:
        for records in read_to(reader, end, partition=partition, meanwhile=meanwhile):
            yield from (record for record in records if record.offset < end)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one poll has found: all records from `start` up to, not including, `end`."""

    start: int
    records: Sequence[Record]
    end: int


def follow(
    reader: Reader,
    stopping: threading.Event,
    clock: Clock,
    *,
    partition: int = 0,
    max_records: int = 500,
    is_over: Callable[[], bool],
) -> Iterator[Progress]:
    """Yield what each poll finds, which may be nothing, until `stopping` is set.

    That is seen within seconds, or at once by `Polled.wake`. Ends also when `is_over` says so. It
    is asked every 15 seconds whether the log is another one, or shorter, than the one that is read:
    who reads at the end of a log hears of neither.
    """
    checked = clock.monotonic()
    end = reader.position(partition)
    while not stopping.is_set():
        start, records = end, reader.poll(_FOLLOW_S, max_records=max_records)
        end = reader.position(partition)
        yield Progress(start, records, end)
        if clock.monotonic() - checked > _CHECK_S:
            checked = clock.monotonic()
            if is_over():
                return


def keep_following(
    stopping: threading.Event, clock: Clock, what: str, steps: Callable[[], Iterator[object]]
) -> None:
    """Do as `keep_yielding` after any `PackhorseError`; what `steps` yields is of no interest."""
    for _ in keep_yielding(stopping, clock, what, steps, PackhorseError):
        pass


def keep_yielding(
    stopping: threading.Event,
    clock: Clock,
    what: str,
    steps: Callable[[], Iterator[T]],
    passing: type[PackhorseError],
) -> Generator[T, None, None]:
    """Yield what `steps` does, called again and again; after a `passing` error a second later.

    Such errors are logged, as is the first step after them; others are raised.
    """
    outage = Outage(logger, f"{what} can't be followed now", f"{what} is followed again", clock)
    while not stopping.is_set():
        try:
            for step in steps():
                outage.ended()
                yield step
        except passing as error:
            outage.failed(error)
            clock.wait(stopping, _RETRY_S)
