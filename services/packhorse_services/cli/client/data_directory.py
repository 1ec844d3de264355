"""The folder that one embedded stack lives in, and what of it other commands may read."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from packhorse.errors import Permanent

_OURS = frozenset({"lock", "postgres", "tokens.json", "author.json"})
_NOBODYS = frozenset({"lost+found"})
_GLANCE_S = 0.2


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
    topology: str
    jobs: str
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
        self.tables = self.root / "tables"
        self.logs = self.root / "logs"
        self.tokens = self.root / "tokens.json"
        self._running = self.root / "running.json"
        self._author = self.root / "author.json"
        self._lock_file = self.root / "lock"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Create what is missing, and keep others out. Raises `DataInUse`, `DataUnusable`."""
        try:
            self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._refuse_foreign()
            lock = self._lock_file.open("a+")
        except OSError as error:
            raise self._unusable(error) from error
        with lock:
            self._lock(lock)
            self._make_folders()
            try:
                yield
            finally:
                self._running.unlink(missing_ok=True)

    def _refuse_foreign(self) -> None:
        """Raise `DataUnusable` for a folder with something in it that is not ours."""
        names = {path.name for path in self.root.iterdir()} - _NOBODYS
        if names and not names & _OURS:
            raise DataUnusable(
                f"{self.root} holds other things ({min(names)}, …) and is no data folder of "
                "packhorse; name an empty one with --data"
            )

    def _make_folders(self) -> None:
        try:
            for folder in (self.blobs, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> DataUnusable:
        return DataUnusable(f"{self.root} can't be the data folder: {error.strerror}")

    def publish(self, stack: RunningStack, author: Mapping[str, str]) -> None:
        """Let other commands find the stack, and run a service's own tools for the author."""
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
        if not self._is_claimed():  # one that was killed left its file behind
            raise NotRunning(
                f"no stack runs on {self.root}; start one with packhorse up --data {self.root}"
            )
        try:
            return RunningStack(**json.loads(self._running.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise NotRunning(
                f"the stack on {self.root} is starting or ending; try again in a moment"
            ) from error

    def refuse_claimed(self) -> None:
        """Raise `DataInUse` when somebody works on the folder; create nothing."""
        if self._is_claimed():
            with self._lock_file.open() as lock:
                raise self._in_use(lock)

    def _is_claimed(self) -> bool:
        try:
            with self._lock_file.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _in_use(self, lock: IO[str]) -> DataInUse:
        return DataInUse(
            f"{self.root} is in use by process {lock.read().strip()}; stop that one "
            "first, or choose another --data folder"
        )

    def _lock(self, lock: IO[str]) -> None:
        deadline = time.monotonic() + _GLANCE_S  # another command may just be looking
        while not _locked(lock):
            if time.monotonic() > deadline:
                lock.seek(0)
                raise self._in_use(lock)
            time.sleep(_GLANCE_S / 10)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_privately(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)
