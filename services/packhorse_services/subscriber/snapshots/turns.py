"""Whose turn it is with the tree: the lanes' side by side, or that of a load, which is alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Of one worker; another process is kept away by the lease, and by the epoch if need be.

    A load that was asked for waits for the steps that are under way, and no new one begins.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps = 0
        self._loading = False

    def is_loading(self) -> bool:
        """Tell whether a load is under way, or about to be."""
        with self._changed:
            return self._loading

    @contextmanager
    def step(self) -> Iterator[bool]:
        """Lend a turn for one step; false, and none is to be taken, when there is a load."""
        with self._changed:
            mine = not self._loading
            self._steps += mine
        try:
            yield mine
        finally:
            with self._changed:
                self._steps -= mine
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Lend the only turn once all steps have ended; false when another has it or wants it."""
        with self._changed:
            mine = not self._loading
            if mine:
                self._loading = True
                self._changed.wait_for(lambda: self._steps == 0)
        try:
            yield mine
        finally:
            with self._changed:
                self._loading = self._loading and not mine
                self._changed.notify_all()
