"""The folder that one embedded stack lives in, and what of it other commands may read."""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from packhorse.client.stack_folder import RunningStack, StackFolder
from packhorse.errors import Permanent

_OURS = frozenset({"lock", "postgres", "tokens.json", "author.json"})
_NOBODYS = frozenset({"lost+found"})
_GLANCE_S = 0.2


class DataInUse(Permanent):
    """Another `packhorse up` works on the folder; the text says which."""


class DataUnusable(Permanent):
    """The folder can't be made or written; choose another with --data."""


class DataDirectory(StackFolder):
    """Paths below `root`, and who may use them: one supervisor at a time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.postgres = self.root / "postgres"
        self.blobs = self.root / "blobs"
        self.tables = self.root / "tables"
        self.logs = self.root / "logs"
        self.connector_key = self.root / "connector.key"
        """The shared key of the connectors between the clusters of the stack."""

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Create what is missing, and keep others out. Raises `DataInUse`, `DataUnusable`."""
        try:
            self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._refuse_foreign()
            self.lock_file.touch(mode=0o600)  # who may open it may lock it
            lock = self.lock_file.open("a+")
        except OSError as error:
            raise self._unusable(error) from error
        with lock:
            self._lock(lock)
            self._make_missing()
            try:
                yield
            finally:
                self.running_file.unlink(missing_ok=True)

    def _refuse_foreign(self) -> None:
        """Raise `DataUnusable` for a folder with something in it that is not ours."""
        names = {path.name for path in self.root.iterdir()} - _NOBODYS
        if names and not names & _OURS:
            raise DataUnusable(
                f"{self.root} holds other things ({min(names)}, …) and is no data folder of "
                "packhorse; name an empty one with --data"
            )

    def _make_missing(self) -> None:
        try:
            for folder in (self.blobs, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
            if not self.connector_key.exists():
                _write_privately(self.connector_key, secrets.token_urlsafe(48))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> DataUnusable:
        return DataUnusable(f"{self.root} can't be the data folder: {error.strerror}")

    def publish(self, stack: RunningStack, author: Mapping[str, str]) -> None:
        """Let other commands find the stack, and run a service's own tools for the author."""
        _write_privately(self.author_file, json.dumps(dict(author)))
        _write_privately(self.running_file, stack.line())

    def refuse_claimed(self) -> None:
        """Raise `DataInUse` when somebody works on the folder; create nothing."""
        if self.is_claimed():
            with self.lock_file.open() as lock:
                raise self._in_use(lock)

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
