"""Programs that are forked from one process, which a supervisor uses instead of starting each."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from packhorse.runtime import leash
from packhorse_services.cli.stack import fork_server

_MODULE = fork_server.__name__
_FOREVER_S = 1e6
"""As many milliseconds as `poll` takes are 24 days."""
_ANSWERS_S = 120.0
"""A server that says nothing for so long is killed; programs are started without it then."""


class ForkServer:
    """Starts `fork_server` when first needed, and again when it has died. Used by one thread."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._usable = sys.platform == "linux"
        self._alive: set[int] = set()
        self._codes: dict[int, int] = {}
        self._spawned: list[int] = []

    def fork(
        self, command: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> "ForkedProcess | None":
        """Run `python -m` of a service as a fork; None where that is not possible."""
        service = _service_of(command)
        if service is None or not self._serves():
            return None
        about = {"service": service, "environment": dict(environment), "log": str(log)}
        message = json.dumps(about).encode()
        if len(message) > fork_server.LONGEST_MESSAGE or not self._send(message):
            return None
        deadline = time.monotonic() + _ANSWERS_S
        while self.is_alive and not self._spawned:
            self._receive(max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                self.close()
        pid = self._spawned.pop() if self._spawned else 0
        return ForkedProcess(self, pid) if pid else None  # 0: the system has no process to give

    @property
    def is_alive(self) -> bool:
        """Whether it was there when it was last spoken to."""
        return self._channel is not None

    def news(self) -> Sequence[socket.socket]:
        """Return what can be read once a program has ended, or the server itself."""
        return () if self._channel is None else (self._channel,)

    def exit_code(self, pid: int, timeout: float = 0.0) -> int | None:
        """Return how a program ended, at the latest after `timeout` seconds; None: it runs."""
        deadline = time.monotonic() + timeout
        while pid in self._alive:
            took = self._receive(max(0.0, deadline - time.monotonic()))
            if not took and pid in self._alive:
                return None
        return self._codes[pid]

    def send_signal(self, pid: int, number: int) -> None:
        """Send it unless the program has ended."""
        if self.exit_code(pid) is None:
            self._send(json.dumps({"pid": pid, "signal": number}).encode())

    def close(self) -> None:
        """End the server, and with it all programs that it has forked and that still run."""
        if self._process is not None and self._channel is not None:
            self._channel.close()
            self._channel = None
            self._process.kill()
            self._process.wait()
            self._codes.update(dict.fromkeys(self._alive, -int(signal.SIGKILL)))
            self._alive.clear()

    def _serves(self) -> bool:
        """Return whether it is ready, after starting it if need be; one that fails is the last."""
        if self.is_alive or not self._usable:
            return self.is_alive
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*leash.on_leash(), sys.executable, "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._channel = ours
        if not self._receive(_ANSWERS_S):
            self._usable = False
            self.close()
        return self.is_alive

    def _send(self, message: bytes) -> bool:
        try:
            if self._channel is not None:
                self._channel.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self.close()
        return self.is_alive

    def _receive(self, timeout: float) -> bool:
        """Take in what it says; false when it says nothing in time, or has died."""
        if self._channel is None or not wait([self._channel], timeout):
            return False
        try:
            message = self._channel.recv(fork_server.LONGEST_MESSAGE)
        except ConnectionResetError:  # it died before it had read all
            message = b""
        if not message:
            self.close()
            return False
        said: dict[str, Any] = json.loads(message)
        if "ended" in said:
            self._codes[said["ended"]] = said["code"]
            self._alive.discard(said["ended"])
        elif "spawned" in said:
            self._spawned.append(said["spawned"])
            if said["spawned"]:
                self._codes.pop(said["spawned"], None)
                self._alive.add(said["spawned"])
        return True


class ForkedProcess:
    """What `subprocess.Popen` is of a started program: the part that a supervisor uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._server.exit_code(self.pid)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self._server.send_signal(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self._server.send_signal(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises `subprocess.TimeoutExpired` while it runs on."""
        code = self._server.exit_code(self.pid, _FOREVER_S if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code


def _service_of(command: tuple[str, ...]) -> str | None:
    if command[:2] != (sys.executable, "-m") or len(command) != 3:
        return None
    service = command[2].removeprefix(fork_server.PREFIX)
    return service if service in fork_server.SERVICES else None
