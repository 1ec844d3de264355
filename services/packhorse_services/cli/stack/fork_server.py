"""The process that forks a stack's programs: it has imported what they share, and does no more.

Run as a module with the number of a socket of `SOCK_SEQPACKET`, whose peer is `ForkServer`. A
program is a fork that returns into `main` and goes on as `python -m` would: its own pid and
session, standard output and signals. It ends with this process, and this one with its starter.
"""

import ctypes
import gc
import importlib
import json
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

PREFIX = "packhorse_services."
SERVICES = ("publisher", "content", "cleanup", "subscriber", "topology", "jobs", "console")
"""The programs that can be forked, by the names of their packages."""

LONGEST_MESSAGE = 128 * 1024
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Serve until the peer is gone; in a fork, be the program."""
    # Who ends all processes of a group or machine reaches the programs, which end in order.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in SERVICES:
        importlib.import_module(f"{PREFIX}{name}.app")  # a program may import it when it serves
    programs = {name: importlib.import_module(f"{PREFIX}{name}.__main__") for name in SERVICES}
    if len([*Path("/proc/self/task").iterdir()]) > 1:
        sys.exit("an import has started a thread, which no fork would have")
    gc.collect()
    gc.freeze()  # a collection in a fork would write to the pages that all share
    program = _Forking(channel, programs).serve()
    if program is not None:
        _run(program)


class _Forking:
    """Reads what the peer wants: to spawn, or to send a signal; says who was born and who ended."""

    def __init__(self, channel: socket.socket, programs: Mapping[str, ModuleType]) -> None:
        self._channel, self._programs = channel, programs
        self._woken, self._wakes = socket.socketpair()
        self._alive: set[int] = set()

    def serve(self) -> Callable[[], None] | None:
        """Return None when the peer is gone, and in each fork what it has to do."""
        self._wakes.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        self._say({"ready": True})
        with selectors.DefaultSelector() as ready:
            ready.register(self._channel, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while True:
                if any(key.fileobj is self._woken for key, _ in ready.select()):
                    self._woken.recv(4096)
                    self._reap()
                    continue
                message = self._channel.recv(LONGEST_MESSAGE)
                if not message:
                    return None
                if (program := self._obey(json.loads(message))) is not None:
                    return program

    def _obey(self, wanted: Mapping[str, Any]) -> Callable[[], None] | None:
        if "signal" in wanted:
            if wanted["pid"] in self._alive:  # not reaped, so the number is nobody else's
                os.kill(wanted["pid"], wanted["signal"])
            return None
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # a limit is reached: the programs that are there go on
            self._say({"spawned": 0})
            return None
        if pid == 0:
            self._leave(server)
            return _become(self._programs[wanted["service"]], wanted)
        self._alive.add(pid)
        self._say({"spawned": pid})
        return None

    def _leave(self, server: int) -> None:
        """Give up, in a fork, what is the server's."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != server:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *_ENDING):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        for each in (self._channel, self._woken, self._wakes):
            each.close()

    def _reap(self) -> None:
        for pid in sorted(self._alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._alive.discard(pid)
                self._say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _say(self, what: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the next read finds the end
            self._channel.send(json.dumps(what).encode())


def _become(program: ModuleType, wanted: Mapping[str, Any]) -> Callable[[], None]:
    """Take on session, output, environment and name of a program; return what runs it."""
    os.setsid()
    log = os.open(wanted["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    time.tzset()
    sys.argv = [str(program.__file__)]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"packhorse-{wanted['service']}".encode())
    start: Callable[[], None] = program.main
    return start


def _run(program: Callable[[], None]) -> None:
    """Run a program, and end the process without giving back what was imported.

    The interpreter would do that piece by piece, and so write to all pages that the forks share. A
    program that raises ends as the interpreter ends it.
    """
    code = 0
    try:
        program()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        code = end.code or 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
