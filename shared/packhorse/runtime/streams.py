"""The places of a process for clients that follow it, how long each lasts, and the end of all."""

import asyncio
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from packhorse.errors import Transient
from packhorse.runtime.changes import Changes


class TooManyStreams(Transient):
    """As many clients follow the process as it takes."""


class StreamsEnded(Transient):
    """The process is about to end; another one can be asked."""


class Streams:
    """Counts the streams of a process, tells them of news, and ends them."""

    def __init__(self, gauge: Gauge, most: int) -> None:
        self.changes = Changes()
        self.stopping = threading.Event()
        self.count = 0
        self._gauge, self._most = gauge, most

    @property
    def ended(self) -> bool:
        """Whether streams have to end now."""
        return self.stopping.is_set()

    def end_streams(self) -> None:
        """End all streams soon, and let none begin: the process is told to end."""
        self.stopping.set()
        self.changes.announce()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a place for one stream. Raises `TooManyStreams`, `StreamsEnded`."""
        if self.ended:
            raise StreamsEnded("this process is about to end; ask another one")
        if self.count >= self._most:
            raise TooManyStreams(
                f"{self._most} clients follow it already; raise event_streams or ask another "
                "replica"
            )
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
