"""The programs as real processes, each of which a test may kill, pause and start again.

`Rooms` starts them one by one, with nobody who restarts them behind the test's back.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from packhorse.runtime import leash
from packhorse.runtime.token_file import ensure_token_file
from packhorse_services.cli.connection import read_token
from packhorse_services.cli.ports import free_port
from tests.harness.waiting import eventually

READY_S = 180.0

HEEDING = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)
"""A test run in the background ignores SIGINT, and what it starts would inherit that."""


class Process:
    """One program. What it says on stderr goes on in one file over all its lives."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name, self.command, self.environment = name, tuple(command), dict(environment)
        self.log, self.output = folder / f"{name}.log", folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process that runs now, or ran last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, prefix: Sequence[str] = ()) -> None:
        """Start it, behind `prefix` (such as strace with its options), without waiting."""
        assert not self.running, f"{self.name} runs already"
        leashed = (
            sys.executable,
            "-ES",
            leash.__file__,
            str(os.getpid()),
            str(int(signal.SIGKILL)),
        )
        with self.log.open("ab") as log, self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [*leashed, *_absolute(prefix), *self.command],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it with SIGKILL, in whatever it is doing, and its children with it."""
        self._signal_group(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """Stop it: connections stay open, nothing answers."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_group(signal.SIGCONT)

    def stop(self, timeout: float = 180.0) -> int:
        """End it as its operator would; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait(timeout)

    def wait(self, timeout: float = 180.0) -> int:
        """Wait for its end; return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    def said(self, count: int = 40) -> str:
        """Return the last lines of its output."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return f"{self.name}:\n" + "\n".join(lines[-count:])

    def _signal_group(self, number: signal.Signals) -> None:
        if self.running:
            os.killpg(self.pid, number)


class Room(Process):
    """A program that serves HTTP on a port that stays the same over its lives."""

    def __init__(self, name: str, room: str, environment: Mapping[str, str], folder: Path) -> None:
        port = free_port()
        super().__init__(
            name,
            (sys.executable, "-m", f"packhorse_services.{room}"),
            {**environment, "PACKHORSE_PORT": str(port)},
            folder,
        )
        self.url = f"http://127.0.0.1:{port}"

    def ready(self, timeout: float = READY_S) -> "Room":
        """Wait until it can work, and return it."""

        def answers() -> bool:
            if not self.running:  # waiting does not help any more
                raise RuntimeError(self.said())
            return _is_ready(self.url)

        eventually(answers, timeout=timeout, what=f"{self.name} ready\n{self.said()}")
        return self

    def restart(self) -> None:
        """End it cleanly and start it again."""
        self.stop()
        self.start()
        self.ready()


class Rooms:
    """The programs of one test: one journal, one blob store, a database for each that asks."""

    def __init__(self, folder: Path, journal_url: str, **settings: Any) -> None:
        self.folder = folder
        self.all: list[Room] = []
        self.tokens = folder / "tokens.json"
        ensure_token_file(self.tokens)
        self.token = read_token(self.tokens)
        self._settings = {
            "host": "127.0.0.1",
            "journal_url": journal_url,
            "blobs_url": str(folder / "blobs"),
            "token_file": self.tokens,
            **settings,
        }

    def publisher(self, database_url: str, agent: str = "main", **settings: Any) -> Room:
        """Return a publisher, not started."""
        return self._room(agent, "publisher", database_url, agent=agent, **settings)

    def content(self, database_url: str, **settings: Any) -> Room:
        """Return a content API, not started."""
        return self._room("content", "content", database_url, **settings)

    def subscriber(self, name: str, database_url: str, **settings: Any) -> Room:
        """Return a subscriber, not started."""
        return self._room(name, "subscriber", database_url, subscriber=name, **settings)

    def cleanup(self, database_url: str, **settings: Any) -> Room:
        """Return a cleanup service, not started."""
        return self._room("cleanup", "cleanup", database_url, **settings)

    def topology(self, database_url: str, **settings: Any) -> Room:
        """Return a topology service, not started."""
        return self._room("topology", "topology", database_url, **settings)

    def jobs(self, database_url: str, **settings: Any) -> Room:
        """Return a jobs service, not started."""
        return self._room("jobs", "jobs", database_url, **settings)

    def reports(self, **settings: Any) -> Room:
        """Return the pipeline's service of reports, not started; its tables are in our folder."""
        tables = {"tables_url": str(self.folder / "tables"), **settings}
        room = self._room("reports", "pipeline", "", **tables)
        room.command = (*room.command, "serve")
        return room

    def start(self) -> None:
        """Start all that do not run, and wait until they are ready."""
        for room in self.all:
            if not room.running:
                room.start()
        for room in self.all:
            room.ready()

    def stop(self) -> None:
        """End all that run as their operator would, together."""
        ending = [room for room in self.all if room.running]
        for room in ending:
            os.kill(room.pid, signal.SIGTERM)
        for room in ending:
            room.wait()

    def kill(self) -> None:
        """End all of them with SIGKILL, together."""
        for room in self.all:
            if room.running:
                os.killpg(room.pid, signal.SIGKILL)
        for room in self.all:
            room.wait()

    def _room(self, name: str, room: str, database_url: str, **settings: Any) -> Room:
        merged = {**self._settings, "database_url": database_url, **settings}
        environment = {f"PACKHORSE_{key.upper()}": _text(value) for key, value in merged.items()}
        replicas = sum(other.name.partition("#")[0] == name for other in self.all)
        made = Room(f"{name}#{replicas}" if replicas else name, room, environment, self.folder)
        self.all.append(made)
        return made


@contextmanager
def rooms(journal_url: str, **settings: Any) -> Iterator[Rooms]:
    """Give an empty set of programs; whatever was started of it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="packhorse-test-rooms-"))
    made = Rooms(folder, journal_url, **settings)
    try:
        yield made
    finally:
        for room in made.all:
            if room.running:
                room.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).is_success
    except httpx.TransportError:
        return False


def _absolute(prefix: Sequence[str]) -> list[str]:
    """The leash runs its command by path."""
    if not prefix:
        return []
    found = shutil.which(prefix[0])
    assert found, f"{prefix[0]} is not installed"
    return [found, *prefix[1:]]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
