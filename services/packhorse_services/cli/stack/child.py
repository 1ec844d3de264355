"""One program run as a child process: on a leash, with a bounded log, in a session of its own."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packhorse.runtime import leash
from packhorse_services.cli.stack.forked import ForkedProcess, ForkServer

_MAX_LOG_BYTES = 16 * 1024 * 1024
_SHOWN_BYTES = 4096
_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """What to run. `url` is where it will serve `/readyz`; `environment` adds to ours."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    url: str


class ChildProcess:
    """A program that runs, has ended, or is to be run again. Used by one thread.

    The kernel ends it when the thread that spawned it ends, however that happens. With `forks` it
    is forked where that is possible, which takes less time and memory.
    """

    def __init__(self, program: ChildProgram, log: Path, forks: ForkServer | None = None) -> None:
        self.program, self.log = program, log
        self.started_at = 0.0
        self._said_before = 0
        self._forks = forks
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 before the first spawn."""
        return self._process.pid if self._process else 0

    def spawn(self) -> None:
        """Start the program."""
        environment = _environment(self.program.environment)
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        forked = self._forks and self._forks.fork(self.program.command, environment, self.log)
        self._process = forked or self._started(environment)
        self.started_at = time.monotonic()

    def _started(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*leash.on_leash(), *self.program.command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the supervisor, which ends all in order
            )

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._process.poll() if self._process else None

    def request_stop(self) -> None:
        """Send SIGTERM, unless it has ended."""
        if self._process is not None:
            self._process.terminate()

    def end_by(self, deadline: float) -> None:
        """Wait until the `time.monotonic` of `deadline`, then kill it."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self._process.kill()
        self._process.wait()

    def last_lines(self) -> str:
        """Return the end of what it has said since it was spawned."""
        with self.log.open("rb") as log:
            log.seek(max(self._said_before, self.log.stat().st_size - _SHOWN_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return our own environment with `settings`, and without what would contradict them."""
    inherited = {
        name: value for name, value in os.environ.items() if not _contradicts(name, settings)
    }
    return {**inherited, **settings}


def _contradicts(name: str, settings: Mapping[str, str]) -> bool:
    return name.removesuffix("_FILE") in settings or f"{name}_FILE" in settings


def bound_log(log: Path, limit: int = _MAX_LOG_BYTES) -> None:
    """Move what a long log holds to `<log>.1`; the program goes on writing to the same file."""
    if log.exists() and log.stat().st_size > limit:
        aside = log.with_name(log.name + ".1")
        aside.touch(mode=0o600)
        shutil.copy2(log, aside)
        os.truncate(log, 0)
