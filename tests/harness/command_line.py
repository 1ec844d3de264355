"""The command line as a user runs it: `packhorse up`, which stays, and any other to its end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from packhorse_services.cli.data_directory import DataDirectory
from packhorse_services.cli.embedded import EmbeddedPostgres
from tests.harness.processes import READY_S, Process
from tests.harness.waiting import eventually


class Up(Process):
    """`packhorse up --json` on a data folder that stays over its lives."""

    def __init__(self, folder: Path, *options: str, data: Path | None = None) -> None:
        self.data = data or folder / "data"
        command = (
            *(sys.executable, "-m", "packhorse_services.cli", "up", "--json", "--port", "0"),
            *("--data", str(self.data), *options),
        )
        super().__init__("up", command, {}, folder)

    def ready(self, timeout: float = 2 * READY_S) -> dict[str, Any]:
        """Wait until everything is up, and return the line it printed."""

        def printed() -> str:
            assert self.running, self.said()
            text = self.output.read_text()
            return text if text.endswith("\n") else ""

        lines = eventually(printed, timeout=timeout, what=f"the stack\n{self.said()}").splitlines()
        assert len(lines) == 1, lines
        stack: dict[str, Any] = json.loads(lines[0])
        return stack

    def pids(self) -> dict[str, int]:
        """Return the process ids as they are now, after restarts."""
        found: dict[str, int] = json.loads((self.data / "running.json").read_text())["pids"]
        return found

    def kill_everything(self) -> None:
        """End the supervisor, the programs and PostgreSQL with SIGKILL, together."""
        for pid in (self.pid, *self.pids().values()):
            with suppress(ProcessLookupError):  # a program ends by itself without its supervisor
                os.kill(pid, signal.SIGKILL)
        self.wait()


@contextmanager
def data_folder() -> Iterator[Path]:
    """Give a folder for `Up`; a server that was left running on it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="packhorse-test-up-"))
    folder.chmod(0o711)  # as root the server runs as another user, who must get there
    try:
        yield folder
    finally:
        EmbeddedPostgres(DataDirectory(folder / "data").postgres).stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def packhorse(
    *arguments: str, data: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, on the stack in `data`."""
    options = ("--data", str(data)) if data else ()
    done = subprocess.run(
        (sys.executable, "-m", "packhorse_services.cli", *options, *arguments),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=540,
        check=False,
    )
    assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done
