"""Threads for consumers: made when needed, used again, never waited for at the process's end."""

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

_IDLE_S = 60.0
"""How long a thread without work stays."""


class Threads:
    """Runs work, each piece in a thread of its own, up to as many as are asked for at a time.

    Its caller bounds how many. They are daemons: a consumer that hangs keeps no process alive.
    """

    def __init__(self, name: str, *, idle_s: float = _IDLE_S) -> None:
        self._name, self._idle_s = name, idle_s
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = 0
        self._numbers = itertools.count(1)

    def run(self, work: Callable[[], None]) -> None:
        """Begin a piece of work, which raises nothing, at once."""
        with self._lock:
            reuse = self._idle > 0
            if reuse:
                self._idle -= 1
        if reuse:
            self._work.put(work)
            return
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=self._live, args=(work,), name=name, daemon=True).start()

    def _live(self, work: Callable[[], None]) -> None:
        following: Callable[[], None] | None = work
        while following is not None:
            following()
            following = self._next()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            self._idle += 1
        with suppress(Empty):
            return self._work.get(timeout=self._idle_s)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                return None
        return self._work.get()  # it was promised to a caller just now
