"""Server-sent events: the places of a process for clients that follow it, and one client's stream.

What a client is sent, and how it goes on where it was, is each service's own: it subclasses
`EventStream`, and its ids are what a client sends back as `Last-Event-ID`.
"""

import asyncio
import math
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from fastapi.sse import ServerSentEvent
from prometheus_client import Gauge
from pydantic import BaseModel
from starlette.types import Scope

from packhorse.errors import Transient
from packhorse.runtime import places
from packhorse.runtime.changes import ChangeSignal
from packhorse.runtime.problems import Problem

LIFE_S = 300.0
_RETRY_MS = 2_000
_SHARED = 16
"""From so many places on one caller has a quarter of them."""


class TooManyStreams(Transient):
    """As many clients follow the process as it takes."""


class StreamsEnded(Transient):
    """The process is about to end; another one can be asked."""


class Streams:
    """Counts the streams of a process, notifies them of news, and ends them."""

    def __init__(self, gauge: Gauge, most: int) -> None:
        self.changes = ChangeSignal()
        self.stopping = threading.Event()
        self.count = 0
        self._gauge, self._most = gauge, most
        self._places = places.Places("streams", most, most // 4 if most >= _SHARED else most)

    @property
    def ended(self) -> bool:
        """Whether streams have to end now."""
        return self.stopping.is_set()

    def end_streams(self) -> None:
        """End all streams soon, and let none begin: the process is asked to end."""
        self.stopping.set()
        self.changes.announce()

    @contextmanager
    def place(self, scope: Scope) -> Iterator[None]:
        """Take a place for a request's stream; one caller has a quarter of many.

        Raises `TooManyStreams`, `StreamsEnded`, and `Problem` 429.
        """
        if self.ended:
            raise StreamsEnded("this process is about to end; ask another one")
        if self.count >= self._most:
            raise TooManyStreams(
                f"{self._most} clients follow it already; raise event_streams or ask another "
                "replica"
            )
        with self._places.taken(places.who(scope)):
            places.leave(scope)
            self._moved(+1)
            try:
                yield
            finally:
                self._moved(-1)

    def _moved(self, by: int) -> None:
        self.count += by
        self._gauge.set(self.count)


class Life:
    """How long one stream lasts: its token may be taken back, and must not read on for ever."""

    def __init__(self, life_s: float) -> None:
        self._ends_at = time.monotonic() + life_s * random.uniform(0.8, 1)  # noqa: S311

    @property
    def over(self) -> bool:
        """Whether the stream has to end now."""
        return time.monotonic() >= self._ends_at

    async def wait(self, news: asyncio.Event, most_s: float = math.inf) -> None:
        """Return once there is news, the life is over, or `most_s` seconds have passed."""
        left = max(0.0, self._ends_at - time.monotonic())
        try:
            async with asyncio.timeout(min(most_s, left)):
                await news.wait()
        except TimeoutError:
            pass


class EventStream(ABC):
    """One client's stream: the blocks to send, until its life is over or the process ends."""

    def __init__(self, streams: Streams, life_s: float = LIFE_S) -> None:
        self._streams, self._life = streams, Life(life_s)
        self._moved = False
        """Set by `_round` when it has come further, though there was no event for this client."""

    async def blocks(self) -> AsyncIterator[ServerSentEvent]:
        """Yield events as they come; the first block has only the position and `retry`."""
        yield ServerSentEvent(id=self._position(), retry=_RETRY_MS, comment="events follow")
        while not self._over():
            with self._streams.changes.subscribed() as news:
                waits, self._moved = True, False
                async for block in self._round():
                    waits = False
                    yield block
                    if self._streams.ended:
                        return
                if waits and not (self._moved or self._over()):
                    await self._life.wait(news, self._pause_s())

    @abstractmethod
    def _round(self) -> AsyncIterator[ServerSentEvent]:
        """Yield what there is now: what the client has missed, gaps, and what is new."""

    def _position(self) -> str | None:
        """Return the id behind which a client goes on that has heard no event yet."""
        return None

    def _pause_s(self) -> float:
        """Return after how many seconds to look again without news."""
        return math.inf

    def _over(self) -> bool:
        """Whether the stream has to end now; the client comes back."""
        return self._streams.ended or self._life.over


def gap_block(document: BaseModel) -> ServerSentEvent:
    """Return the event that says that the client has missed some."""
    return ServerSentEvent(event="gap", raw_data=document.model_dump_json())


def unknown_event_id() -> Problem:
    """Return the answer to a `Last-Event-ID` that no event of this service has."""
    wrong = {"pointer": "header/last-event-id", "detail": "not the id of an event"}
    why = "Last-Event-ID is not the id of an event; leave it out to begin now"
    return Problem(422, detail=why, errors=[wrong])
