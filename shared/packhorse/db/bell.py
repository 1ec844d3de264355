"""Wakes a thread that waits for a database's hints."""

import select
import socket
import threading
from contextlib import suppress

from psycopg import Connection


class Bell:
    """Rung by any thread, heard by the one that waits; no ring is lost. Opens nothing before that.

    A ring that comes while nobody waits ends the next wait; several are heard as one.
    """

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._ends: tuple[socket.socket, socket.socket] | None = None

    def ring(self) -> None:
        """Let `wait` return, now or the next time."""
        self._rung.set()  # before the look at the sockets: `wait` makes them, then looks here
        ends = self._ends
        if ends is not None:
            with suppress(OSError):  # full: it rings anyway; closed: nobody waits
                ends[1].send(b"x")

    def wait(self, seconds: float, connection: Connection | None = None) -> bool:
        """Wait for a ring, or until a connection has something to say; true after a ring."""
        ear = self._ear()
        if not self._rung.is_set():
            poll = select.poll()  # epoll would be four calls to the system more for each wait
            for heard in (ear, connection):
                if heard is not None:
                    poll.register(heard, select.POLLIN)
            poll.poll(1000 * max(0.0, seconds))
        with suppress(BlockingIOError):
            ear.recv(4096)
        rung = self._rung.is_set()
        if rung:  # or a ring that comes right now would be lost
            self._rung.clear()
        return rung

    def close(self) -> None:
        """Close what `wait` has opened."""
        ends, self._ends = self._ends, None
        for end in ends or ():
            end.close()

    def _ear(self) -> socket.socket:
        if self._ends is None:
            ends = socket.socketpair()
            for end in ends:
                end.setblocking(False)
            self._ends = ends
        return self._ends[0]
