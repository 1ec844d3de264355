"""Hands out the stored events of other instances, and remembers how far it has got."""

import logging
import threading
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import Connection

from packhorse.clock import SystemClock
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_always_as
from packhorse.db.transactions import Connect
from packhorse.jobs.event import Event
from packhorse.jobs.events.bus import EventBus
from packhorse.jobs.events.delivery import GAP
from packhorse.jobs.events.position import EventPosition, InvalidPosition, parse_position
from packhorse.jobs.events.reading import EventPage, position_now, read_page
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import EVENT_GAPS, EVENTS_RECEIVED
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """How often an instance looks for events, in seconds."""

    poll_s: float = 5.0
    """Between looks when there is no hint; a listener that has lost some says so at once."""
    together_s: float = 0.05
    """Hints that follow one within this time are answered with it."""
    retry_s: float = 1.0
    """Between attempts to reach the database."""
    idle_store_s: float = 60.0
    """The cursor is stored as often even when there was nothing: it must not look old."""


class Receiver(WorkerComponent):
    """A component; each event is handed to a bus once, in order, page by page.

    Start it after the bus. `instance_id` is the persistent id of the instance: nobody else uses it
    at the same time. A new one hears what is stored from its first start on, a known one what it
    has not heard yet. Events for which nobody has subscribed are passed: subscribe before.
    Only an instance that dies after that and before its cursor is stored hands the page out again.
    """

    def __init__(
        self,
        connect: Connect,
        instance_id: str,
        bus: EventBus,
        settings: ReceiverSettings = ReceiverSettings(),
    ) -> None:
        """`connect` gives a connection in autocommit mode."""
        self._connect, self._instance_id, self._bus = connect, instance_id, bus
        self._settings, self._clock = settings, SystemClock()
        self._wake, self._current = threading.Event(), threading.Event()
        self._unstored: set[tuple[int, datetime]] = set()
        self._gap_at = ""
        self._outage = Outage(
            logger,
            "events of other instances can't be read now",
            "events of other instances are read again",
            self._clock,
        )
        self._worker = Worker("events-in", self._run, wake=self._wake.set)

    def start(self) -> None:
        """Begin to look once somebody has subscribed; returns at once."""
        self._bus.once_heard(self._worker.start)

    def wake(self) -> None:
        """Look soon, if somebody here wants events of others."""
        if self._bus.patterns():
            self._wake.set()

    def wait_until_current(self, timeout: float) -> bool:
        """Wait until all was handed out that was there when the database was reached."""
        return self._current.wait(timeout)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                with self._connect() as connection:
                    act_always_as(connection, BOOKKEEPER)
                    self._follow(connection, stopping)
            except psycopg.Error as error:
                self._outage.failed(error)
                self._current.clear()
                self._clock.wait(stopping, self._settings.retry_s)

    def _follow(self, connection: Connection, stopping: threading.Event) -> None:
        """Go on from what is stored: a database that was restored knows best where that is."""
        position, since = load_cursor(connection, self._instance_id)
        stored = self._clock.monotonic()
        while not stopping.is_set():
            page = self._read(connection, position)
            self._hand_out(page, position, since)
            position = page.position
            if page.events or page.gap or self._clock.monotonic() - stored > self._idle_s:
                since = store_cursor(connection, self._instance_id, position)
                stored = self._clock.monotonic()
                self._unstored.clear()
            if not page.more:
                self._current.set()
                self._outage.ended()
                self._pause(stopping)

    @property
    def _idle_s(self) -> float:
        return self._settings.idle_store_s

    def _read(self, connection: Connection, position: EventPosition) -> EventPage:
        try:
            patterns = self._bus.patterns()
            return read_page(connection, position, reader=self._instance_id, patterns=patterns)
        except InvalidPosition:
            logger.error("the stored position of events can't be read; going on from now")
            return EventPage((), position_now(connection), gap=True)

    def _hand_out(self, page: EventPage, position: EventPosition, since: datetime) -> None:
        """Report a gap once; leave out what was handed out and could not be remembered."""
        if page.gap and position.seen != self._gap_at:
            self._gap_at = position.seen
            EVENT_GAPS.inc()
            logger.warning("events were pruned before this instance had them")
            self._bus.deliver([Event(GAP, {"reason": "pruned", "since": since.isoformat()})])
        new = [one for one in page.events if (one.number, one.created_at) not in self._unstored]
        self._bus.deliver(one.at(self._instance_id) for one in new)
        self._unstored.update((one.number, one.created_at) for one in new)
        EVENTS_RECEIVED.inc(len(new))

    def _pause(self, stopping: threading.Event) -> None:
        if self._clock.wait(self._wake, self._settings.poll_s):
            self._clock.wait(stopping, self._settings.together_s)
        self._wake.clear()  # here: one that is set by an end stays so until that is seen


def load_cursor(connection: Connection, instance_id: str) -> tuple[EventPosition, datetime]:
    """Return how far the instance has got, and when that was stored; a new one begins now.

    The connection is in autocommit mode and acts as the bookkeeper.
    """
    rows = connection.execute(
        """
        INSERT INTO jobs.event_cursor (instance_id, position) VALUES (%s, %s)
        ON CONFLICT (instance_id) DO UPDATE SET instance_id = excluded.instance_id
        RETURNING position, stored_at
        """,
        (instance_id, str(position_now(connection))),
    ).fetchall()
    text, stored_at = rows[0]
    return parse_position(text), stored_at


def store_cursor(connection: Connection, instance_id: str, position: EventPosition) -> datetime:
    """Store how far the instance has got, and return the time of that."""
    rows = connection.execute(
        """
        INSERT INTO jobs.event_cursor (instance_id, position) VALUES (%s, %s)
        ON CONFLICT (instance_id)
        DO UPDATE SET position = excluded.position, stored_at = excluded.stored_at
        RETURNING stored_at
        """,
        (instance_id, str(position)),
    ).fetchall()
    return datetime.fromisoformat(str(rows[0][0]))
