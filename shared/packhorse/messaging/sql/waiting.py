"""Records on their way into the log, and the bounded queue in which they wait for the appender."""

import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from packhorse.errors import PackhorseError
from packhorse.messaging.api import Appended, NotAppended, Outgoing
from packhorse.messaging.sql.headers import pack_headers

GROUP_RECORDS = 500
GROUP_BYTES = 8 * 1024 * 1024
"""A group is taken from the queue until it has this much, or the queue is empty."""

WAITING_BYTES = 64 * 1024 * 1024
"""While more than this waits, further records are refused at once."""

_GATHER_S = 0.0005
"""How long a group waits for those whose records were answered just now: a commit costs more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A record as it is stored, and the future of who waits for it."""

    topic: str
    key: str | None
    stored_key: bytes | None
    headers: bytes
    body: bytes
    future: Future[Appended] = field(default_factory=Future)

    @classmethod
    def of(cls, topic: str, record: Outgoing) -> "Waiting":
        """Pack a record in its caller's thread."""
        key = None if record.key is None else record.key.encode()
        return cls(topic, record.key, key, pack_headers(record.headers), record.value)

    @property
    def size(self) -> int:
        """Bytes that it brings along."""
        return len(self.stored_key or b"") + len(self.headers) + len(self.body)

    def succeed(self, place: Appended) -> None:
        """Answer the caller; the first decision stands, for close may have given up before."""
        with suppress(InvalidStateError):
            self.future.set_result(place)

    def fail(self, error: PackhorseError) -> None:
        """Answer the caller; the first decision stands."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class WaitingQueue:
    """First in, first out; many threads put, one takes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records: deque[Waiting] = deque()
        self._bytes = 0
        self._closed = False
        self._answered = 0
        """How many records the last group had; their callers may have the next ones ready soon."""
        self._wanted = 1
        """How many records whoever takes waits for."""

    def put(self, record: Waiting) -> None:
        """Queue a record, or fail its future at once when there is no room or no tomorrow."""
        with self._changed:
            if self._closed:
                record.fail(NotAppended("the journal is closed; open it again"))
            elif self._bytes > WAITING_BYTES:
                record.fail(NotAppended("too much waits to be appended; wait for its futures"))
            else:
                self._records.append(record)
                self._bytes += record.size
                if len(self._records) >= self._wanted:
                    self._changed.notify()

    def take_group(self) -> list[Waiting] | None:
        """Wait for records and return one group, which may be empty when its callers gave up.

        None when the queue is closed and empty.
        """
        with self._changed:
            self._gather()
            if not self._records:
                return None
            group: list[Waiting] = []
            size = 0
            while self._records and len(group) < GROUP_RECORDS and size < GROUP_BYTES:
                record = self._records.popleft()
                size += record.size
                if record.future.set_running_or_notify_cancel():
                    group.append(record)
            self._bytes -= size
            self._answered = len(group)
            return group

    def _gather(self) -> None:
        """Wait for a record, and a moment for as many as there can be if nobody sends several."""
        self._wanted = min(len(self._records) + self._answered, GROUP_RECORDS)
        self._wait(_GATHER_S)
        self._wanted = 1
        self._wait(None)

    def _wait(self, timeout: float | None) -> None:
        self._changed.wait_for(lambda: len(self._records) >= self._wanted or self._closed, timeout)

    def take_all(self) -> list[Waiting]:
        """Return everything that waits, without waiting."""
        with self._changed:
            records = list(self._records)
            self._records.clear()
            self._bytes = 0
            return [record for record in records if record.future.set_running_or_notify_cancel()]

    def close(self) -> None:
        """Take no more records; what waits is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
