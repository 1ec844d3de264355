"""Noticing that the process is asked to end: requests that wait would hold it up."""

import asyncio
from collections.abc import Callable


class StopEvent(asyncio.Event):
    """An event of the loop that is set when the process is to end; calls who wants to know."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], None]] = []

    def then(self, call: Callable[[], None]) -> None:
        """Call `call` each time that the event is set; it returns at once, and raises nothing."""
        self._calls.append(call)

    def set(self) -> None:
        """Tell all who wait, and call the others."""
        super().set()
        for call in self._calls:
            call()
