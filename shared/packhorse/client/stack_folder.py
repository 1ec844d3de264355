"""The folder that one embedded stack lives in, as others read it."""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from packhorse.errors import Permanent


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
    console: str
    token_file: str
    pids: dict[str, int]
    data: str

    def line(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    def urls(self) -> list[str]:
        """Return where its programs are."""
        author = (self.publisher, self.content, self.cleanup, self.topology, self.jobs)
        return [*author, self.console, *self.subscribers.values()]


class StackFolder:
    """Paths below `root`, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.tokens = self.root / "tokens.json"
        self.running_file = self.root / "running.json"
        self.author_file = self.root / "author.json"
        self.lock_file = self.root / "lock"

    def author_settings(self) -> dict[str, str]:
        """Return the environment of the author's programs; empty when no stack ever ran here."""
        try:
            return dict(json.loads(self.author_file.read_text()))
        except (OSError, ValueError):
            return {}

    def running(self) -> RunningStack:
        """Return what the stack that runs here has published. Raises `NotRunning`."""
        if not self.is_claimed():  # one that was killed left its file behind
            raise NotRunning(
                f"no stack runs on {self.root}; start one with packhorse up --data {self.root}"
            )
        try:
            return RunningStack(**json.loads(self.running_file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise NotRunning(
                f"the stack on {self.root} is starting or ending; try again in a moment"
            ) from error

    def is_claimed(self) -> bool:
        """Return whether a stack starts, runs or ends on the folder."""
        try:
            with self.lock_file.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the embedded stack where none was named."""
    if (
        os.geteuid() == 0
    ):  # the embedded server runs as another user, who can't enter a private home
        return Path("/var/lib/packhorse")
    home = environment.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "packhorse"
