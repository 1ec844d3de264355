"""What all streams of events share: places, the news that there is something, and the end."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.events.position import Position
from packhorse.jobs.events.reading import Page, position_now, read_page
from packhorse.jobs.sessions import Connect
from packhorse.runtime.metrics import JOBS_EVENT_STREAMS
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.streams import Streams

logger = logging.getLogger(__name__)

_READERS = 4
_LOOK_S = 1.0
_PAGE = 100


class Hub(Streams):
    """A component. One thread looks for news while anybody follows; streams read for themselves.

    A hint makes it look at once; not every event comes with one, so it looks each second too.
    """

    def __init__(self, connect: Connect, *, max_streams: int) -> None:
        super().__init__(JOBS_EVENT_STREAMS, max_streams)
        self._connect = connect
        self._position: Position | None = None
        self._readers = ThreadPoolExecutor(_READERS, "jobs-events")
        self._looking = Periodic("jobs-news", _LOOK_S, self._look_if_possible)

    def start(self) -> None:
        """Begin to look for news."""
        self._looking.start()

    def stop(self, timeout: float) -> None:
        """Look no more, and end the streams that are left."""
        self.end_streams()
        self._looking.stop(timeout)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def failure(self) -> BaseException | None:
        """Return what the thread died of."""
        return self._looking.failure()

    def hear(self, _hint: str) -> None:
        """Look now: there may be events."""
        self._looking.kick()

    async def read(self, position: Position) -> Page:
        """Read the next events in a thread. Raises `InvalidPosition`, `psycopg.Error`."""
        return await asyncio.wrap_future(self._readers.submit(self._read, position))

    async def now(self) -> Position:
        """Return the position behind all that has been committed."""
        return await asyncio.wrap_future(self._readers.submit(self._now))

    def _look_if_possible(self) -> None:
        try:
            self._look()
        except psycopg.OperationalError as error:
            logger.info("no look for events for now: %s", error)

    def _look(self) -> None:
        if not self.count:
            self._position = None
            return
        if self._position is None:
            self._position = self._now()  # whoever has come before this has read for itself
            self.changes.announce()
            return
        page = self._read(self._position)
        if page.events or page.gap:
            self._position = self._now()  # the streams read all that comes before
            self.changes.announce()
        else:
            self._position = page.position

    def _now(self) -> Position:
        with self._connected() as connection:
            return position_now(connection)

    def _read(self, position: Position) -> Page:
        with self._connected() as connection:
            return read_page(connection, position, most=_PAGE)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with self._connect() as connection:
            act_as(connection, BOOKKEEPER)
            yield connection
