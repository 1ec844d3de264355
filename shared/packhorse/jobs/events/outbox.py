"""Events on their way into the database: in batches, in order, each stored once.

The numbers of a batch are drawn before it is written. So when nobody knows whether a commit
happened, the batch is written again and what is there already stays as it is (R26).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson
import psycopg
from psycopg import Connection

from packhorse.clock import SystemClock
from packhorse.db.transactions import bookkeeping
from packhorse.jobs.event import Event
from packhorse.jobs.event_store import as_array, as_json, notify
from packhorse.jobs.events.bus import EventNotStored
from packhorse.runtime.lifecycle import Worker
from packhorse.runtime.metrics import EVENTS_STORED
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
MOST_BYTES = 64 * 1024 * 1024
"""Of what waits, as JSON: that is what a database which is away may cost."""
_BATCH = 500
_RETRY_S = 1.0

_REFUSED = (psycopg.DataError, psycopg.IntegrityError)
"""The event is wrong; all else is the database's trouble, and passes."""


@dataclass(eq=False, slots=True)
class _Letter:
    topic: str
    properties: bytes
    number: int = 0
    stored: threading.Event = field(default_factory=threading.Event)
    refused: Exception | None = None

    def row(self) -> bytes:
        """Return what is stored of it, as a JSON array."""
        return b"[%d,%b,%b]" % (self.number, orjson.dumps(self.topic), self.properties)


class Outbox:
    """A component that stores what the bus gives it to carry; safe for threads."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        application: str,
        *,
        most_waiting: int = MOST_WAITING,
        patience_s: float = 10.0,
    ) -> None:
        """`patience_s` is how long a sender waits whose event is to be stored when it returns."""
        self._connect, self._application = connect, application
        self._most_waiting, self._patience_s = most_waiting, patience_s
        self._clock = SystemClock()
        self._lock, self._letters, self._bytes = threading.Lock(), deque[_Letter](), 0
        self._wake, self._ended = threading.Event(), False
        self._outage = Outage(
            logger, "events can't be stored now", "events are stored again", self._clock
        )
        self._started = self._stores = False
        self._worker = Worker("events-out", self._run)

    @property
    def waiting(self) -> int:
        """Events that are not known to be stored."""
        return len(self._letters)

    def carry(self, event: Event, *, wait: bool) -> None:
        """Take an event; with `wait` return once it is stored. Raises `EventNotStored`."""
        letter = _Letter(event.topic, as_json(event.properties))
        with self._lock:
            if self._ended:
                raise EventNotStored("this process is ending")
            full = len(self._letters) >= self._most_waiting
            if full or self._bytes + len(letter.properties) > MOST_BYTES:
                raise EventNotStored(
                    f"{len(self._letters)} events wait to be stored; is the database away?"
                )
            self._letters.append(letter)
            self._bytes += len(letter.properties)
        self._begin()
        self._wake.set()
        if wait and not letter.stored.wait(self._patience_s):
            raise EventNotStored("the event is not stored yet; the database may be away")
        if letter.refused is not None:
            raise EventNotStored("the database refused the event") from letter.refused

    def start(self) -> None:
        """Begin to store, in a thread once there is an event; the database may be away."""
        self._started = True
        if self._letters:
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            begins, self._stores = self._started and not self._stores, self._started
        if begins:
            self._worker.start()

    def stop(self, timeout: float) -> None:
        """Store what waits, for up to `timeout` seconds, and say what could not be."""
        with self._lock:
            self._ended = True
        until = time.monotonic() + timeout
        self._wake.set()
        with self._lock:
            last = self._letters[-1] if self._letters else None
        if last is not None:
            last.stored.wait(timeout)
        self._worker.request_stop()
        self._wake.set()
        self._worker.stop(max(1.0, until - time.monotonic()))
        if self._letters:
            logger.warning("%d events were not stored", len(self._letters))

    def failure(self) -> BaseException | None:
        """Return what ended the thread, which no database does."""
        return self._worker.failure()

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            if not self._letters:
                self._clock.wait(self._wake, 60.0)
                self._wake.clear()
                continue
            try:
                with self._connect() as connection:
                    self._empty(connection, stopping)
            except psycopg.Error as error:
                again = self._outage.lasts
                self._outage.failed(error)
                if again:  # the first time it may just be a session that has ended
                    self._clock.wait(stopping, _RETRY_S)

    def _empty(self, connection: Connection, stopping: threading.Event) -> None:
        """Store batches; keep the connection for as long as there is something to do."""
        while not stopping.is_set():
            batch = self._next_batch()
            if not batch and not self._clock.wait(self._wake, 60.0):
                return
            self._wake.clear()
            if batch:
                self._store(connection, batch)

    def _next_batch(self) -> list[_Letter]:
        with self._lock:
            return [letter for letter, _ in zip(self._letters, range(_BATCH), strict=False)]

    def _store(self, connection: Connection, batch: Sequence[_Letter]) -> None:
        try:
            self._write(connection, batch)
        except _REFUSED as error:
            if len(batch) > 1:
                for letter in batch:
                    self._store(connection, [letter])
                return
            topic = batch[0].topic
            logger.error(
                "the database refused an event of %s: %s", topic, error, extra={"topic": topic}
            )
            batch[0].refused = error
        else:
            self._outage.ended()
            EVENTS_STORED.inc(len(batch))
        self._forget(batch)

    def _write(self, connection: Connection, batch: Sequence[_Letter]) -> None:
        with bookkeeping(connection):
            self._draw_numbers(connection, batch)
        with bookkeeping(connection):
            connection.execute(
                """
                INSERT INTO jobs.event (number, application, topic, properties)
                SELECT (row -> 0)::bigint, %s, row ->> 1, row -> 2
                FROM jsonb_array_elements(%s::jsonb) AS given (row)
                ON CONFLICT (number) DO NOTHING
                """,
                (self._application, as_array([letter.row() for letter in batch])),
            )
            notify(connection)

    def _draw_numbers(self, connection: Connection, batch: Sequence[_Letter]) -> None:
        new = [letter for letter in batch if not letter.number]
        rows = connection.execute(
            "SELECT nextval('jobs.event_number_seq') FROM generate_series(1, %s)", (len(new),)
        ).fetchall()
        for letter, (number,) in zip(new, rows, strict=True):
            letter.number = number

    def _forget(self, batch: Sequence[_Letter]) -> None:
        with self._lock:
            for letter in batch:
                self._letters.popleft()
                self._bytes -= len(letter.properties)
        for letter in batch:
            letter.stored.set()
