"""Writers of events whose transactions a test holds, readers that are right or wrong, instances."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import SharedPool
from packhorse.db.roles import act_always_as, act_as
from packhorse.jobs.channels import EVENTS
from packhorse.jobs.event import Event
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.bus import EventBus
from packhorse.jobs.events.position import EventPosition
from packhorse.jobs.events.reading import position_now, read_page
from packhorse.jobs.events.receiver import Receiver, ReceiverSettings
from packhorse.jobs.events.storing import store_event
from packhorse.runtime.listen import Listener

QUICK = ReceiverSettings(poll_s=0.05, together_s=0.0, retry_s=0.05)


@contextmanager
def bookkeeper(url: str) -> Iterator[Connection]:
    """Give a connection in autocommit mode that acts as the bookkeeper."""
    with connect(url, "tests", autocommit=True) as connection:
        act_always_as(connection, BOOKKEEPER)
        yield connection


def emit_all(url: str, *names: str, application: str = "elsewhere", topic: str = "t/x") -> None:
    """Store an event with each name, in one transaction."""
    with bookkeeper(url) as connection, connection.transaction():
        record(connection, [NewEvent(topic, application, {"name": name}) for name in names])


class Writer:
    """A session that writes events when the test says so."""

    def __init__(self, url: str, name: str) -> None:
        self._connection = connect(url, "tests")
        self._name, self._count, self._open = name, 0, list[str]()
        self.committed: list[str] = []

    def write(self) -> None:
        """Write an event, in the transaction that is open or a new one."""
        self._count += 1
        name = f"{self._name}{self._count}"
        act_as(self._connection, BOOKKEEPER)
        record(self._connection, [NewEvent("t/x", self._name, {"name": name})])
        self._open.append(name)

    def commit(self) -> None:
        """Commit what is open."""
        self._connection.commit()
        self.committed += self._open
        self._open.clear()

    def roll_back(self) -> None:
        """Roll back what is open."""
        self._connection.rollback()
        self._open.clear()

    def close(self) -> None:
        """Leave."""
        self._connection.close()


class Reader(Protocol):
    """Reads the events that are new to it."""

    def read(self) -> list[str]:
        """Return the names of all that can be seen now."""
        ...


class TrueReader:
    """Reads as an instance does, in pages of two."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._position = connection, position_now(connection)

    def read(self) -> list[str]:
        names = []
        while True:
            page = read_page(self._connection, self._position, most=2)
            self._position = page.position
            names += [event.properties["name"] for event in page.events]
            if not page.more:
                return names


class NumberReader:
    """Broken: goes on after the highest number that it has seen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last = self._rows("SELECT coalesce(max(number), 0) FROM jobs.event")[0][0]

    def read(self) -> list[str]:
        rows = self._rows(
            "SELECT properties ->> 'name', number FROM jobs.event WHERE number > %s ORDER BY 2",
            self._last,
        )
        self._last = rows[-1][1] if rows else self._last
        return [name for name, _ in rows]

    def _rows(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(text.encode(), parameters).fetchall()


class TransactionReader(TrueReader):
    """Broken: forgets which transactions were under way when it looked."""

    bound = 1
    """Which of its two bounds it goes on from."""

    def read(self) -> list[str]:
        names = super().read()
        seen = self._position.seen.split(":")[self.bound]
        self._position = EventPosition(f"{seen}:{seen}:")
        return names


class OldestReader(TransactionReader):
    """Broken: goes on from the oldest transaction that was under way, so some come twice."""

    bound = 0


class Instance:
    """One instance of a cluster in this process: bus, hints, and both ways to the others.

    It has patience with handlers and the database, so that a test may stand still for a while.
    """

    def __init__(self, url: str, name: str, settings: ReceiverSettings = QUICK, **bus: Any) -> None:
        self.pool, self.hints = SharedPool(url, "packhorse-events-out"), Listener(url)
        store = partial(store_event, self.pool.share(1), name, patience_s=120.0)
        self.bus = EventBus(store, **{"slow_s": 600.0, **bus})
        reads = partial(connect, url, "packhorse-events-in", autocommit=True)
        self.receiver = Receiver(reads, name, self.bus, settings)
        self.hints.on(EVENTS, lambda _: self.receiver.wake())
        self.heard: list[Event] = []
        self.ear = self.bus.subscribe("**", self.heard.append)

    def names(self) -> list[Any]:
        """Return the names of the events that were heard, in order."""
        return [event.properties.get("name") for event in list(self.heard)]

    @contextmanager
    def running(self, *, current: bool = True) -> Iterator["Instance"]:
        """Run inside the block; begin once it has heard what there was."""
        parts = (self.bus, self.hints, self.receiver)
        for part in parts:
            part.start()
        try:
            assert not current or self.receiver.wait_until_current(120)
            yield self
        finally:
            for part in reversed(parts):
                part.stop(120)
            self.pool.stop(120)
            assert all(part.failure() is None for part in parts)


def named(name: str, **properties: Any) -> Event:
    """Return an event for all instances."""
    marked: Mapping[str, Any] = {"event.distribute": True, "name": name, **properties}
    return Event("t/x", marked)


ReaderMaker = Callable[[Connection], Reader]
