"""Notifying coroutines that a thread has news."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ChangeSignal:
    """Wakes every coroutine that waits; a thread calls `announce`, cheaply when nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self.version = 0
        """Grows with every announcement: what was found at this one is as new as can be."""

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits now."""
        return bool(self._waiting)

    def announce(self) -> None:
        """Wake all who wait now."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self.version += 1
        for event, loop in waiting.items():
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # that loop is closed, and with it whoever waited
                continue

    @contextmanager
    def subscribed(self) -> Iterator[asyncio.Event]:
        """Give an event that the next news sets; look at the state after, not before."""
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                self._waiting.pop(event, None)
