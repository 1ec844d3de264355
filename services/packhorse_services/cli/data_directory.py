"""The folder that one embedded stack lives in, and what of it other commands may read."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from packhorse.errors import Permanent


class DataInUse(Permanent):
    """Another `packhorse up` works on the folder; the text says which."""


class DataUnusable(Permanent):
    """The folder can't be made or written; choose another with --data."""


class NotRunning(Permanent):
    """No stack runs on the folder."""


@dataclass(frozen=True, slots=True)
class RunningStack:
    """What `packhorse up --json` prints: where everything is."""

    publisher: str
    content: str
    subscribers: dict[str, str]
    cleanup: str
    token_file: str
    pids: dict[str, int]
    data: str

    def line(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))


class DataDirectory:
    """Paths below `root`, and who may use them: one supervisor at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.postgres = self.root / "postgres"
        self.blobs = self.root / "blobs"
        self.logs = self.root / "logs"
        self.tokens = self.root / "tokens.json"
        self._running = self.root / "running.json"
        self._author = self.root / "author.json"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Create what is missing, and keep others out. Raises `DataInUse`, `DataUnusable`."""
        try:
            self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
            for folder in (self.blobs, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise DataUnusable(f"{self.root} can't be the data folder: {error.strerror}") from error
        with (self.root / "lock").open("a+") as lock:
            self._lock(lock)
            try:
                yield
            finally:
                self._running.unlink(missing_ok=True)

    def publish(self, stack: RunningStack, author: Mapping[str, str]) -> None:
        """Let other commands find the stack, and run a room's own tools with `author` settings."""
        _write_privately(self._author, json.dumps(dict(author)))
        _write_privately(self._running, stack.line())

    def author_settings(self) -> dict[str, str]:
        """Return the environment of the author's programs; empty when no stack ever ran here."""
        try:
            return dict(json.loads(self._author.read_text()))
        except (OSError, ValueError):
            return {}

    def running(self) -> RunningStack:
        """Return what the stack that runs here has published. Raises `NotRunning`."""
        try:
            return RunningStack(**json.loads(self._running.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise NotRunning(
                f"no stack runs on {self.root}; start one with packhorse up --data {self.root}"
            ) from error

    def _lock(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise DataInUse(
                f"{self.root} is in use by process {lock.read().strip()}; stop that one first, or "
                "choose another --data folder"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _write_privately(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)
