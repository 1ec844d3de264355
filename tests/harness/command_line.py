"""The command line as a user runs it: `packhorse up`, which stays, and any other to its end."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from packhorse_services.cli.app import run
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.imported import COMMAND_LINE, begin_module
from tests.harness.processes import READY_S, Process
from tests.harness.waiting import eventually


class Up(Process):
    """`packhorse up --json` on a data folder that stays over its lives.

    It and the server of its programs are forks themselves, unless `module` is the command line.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        data: Path | None = None,
        module: str = "tests.harness.stack_program",
    ) -> None:
        self.data = data or folder / "data"
        command = (
            *(sys.executable, "-m", module, "up", "--json", "--port", "0"),
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
    """Run the command line to its end in this process, on the stack in `data`.

    Saves the start of a program each time. Only for the main thread, and for commands that write
    text, start no program that would write to our own output, and configure no logs.
    """
    options = ("--data", str(data)) if data else ()
    out, said = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(said), _own_process(), _own_alarm():
        code = run([*options, *arguments])
    return _checked(arguments, code, out.getvalue(), said.getvalue(), check)


def packhorse_program(
    *arguments: str, data: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end as a program of its own, a fork that has imported it."""
    options = ("--data", str(data)) if data else ()
    return program(COMMAND_LINE, *options, *arguments, check=check)


def program(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a module of ours to its end in a process of its own, a fork that has imported it."""
    with ExitStack() as stack:
        given, out, said = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin.encode())
        given.seek(0)
        files = [file.fileno() for file in (given, out, said)]
        begun = begin_module((module, *arguments), environment or os.environ, Path.cwd(), files)
        code = begun.wait(540)
        out.seek(0)
        said.seek(0)
        texts = out.read().decode(), said.read().decode()
    return _checked(arguments, code, *texts, check)


def _checked(
    arguments: Sequence[str], code: int, out: str, said: str, check: bool
) -> subprocess.CompletedProcess[str]:
    assert not check or code == 0, f"{arguments}: {code}\n{said}"
    return subprocess.CompletedProcess(arguments, int(code), out, said)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Those that `packhorse up` takes over."""


@contextmanager
def _own_process() -> Iterator[None]:
    """Let nothing be read, and take back what a command that becomes another has changed."""
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO())
            patch.setattr(sys, "argv", sys.argv)
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _own_alarm() -> Iterator[None]:
    """Give the test its time-out back: a command that waits sets the process's one timer anew."""
    remaining, interval = signal.getitimer(signal.ITIMER_REAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)
