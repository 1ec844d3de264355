"""Signals that end `packhorse up`, and a wait that they and the end of a program cut short."""

import select
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interruptions:
    """Takes over the signals of this process when it is made; used by the main thread."""

    def __init__(self) -> None:
        self._ended = False
        self._ear, self._bell = socket.socketpair()
        for end in (self._ear, self._bell):
            end.setblocking(False)
        signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        for number in (*_ENDING, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # by nohup
                signal.signal(number, self._note)

    def ended(self) -> bool:
        """Return whether a signal to end has come."""
        return self._ended

    def wait(self, seconds: float, heard: Iterable[socket.socket]) -> None:
        """Return at a signal, when a child has ended, when a socket has news, or in the end."""
        poll = select.poll()
        for one in (self._ear, *heard):
            poll.register(one, select.POLLIN)
        poll.poll(1000 * seconds)
        with suppress(BlockingIOError):
            self._ear.recv(4096)

    def close(self) -> None:
        """Give up the sockets."""
        signal.set_wakeup_fd(-1)
        self._ear.close()
        self._bell.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._ended = self._ended or number in _ENDING
