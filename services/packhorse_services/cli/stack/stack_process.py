"""`packhorse up` as a child process, for a command that needs a stack for a while."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from packhorse.client.stack_folder import RunningStack
from packhorse.runtime import leash
from packhorse_services.cli.client.failures import CommandFailed

_END_S = 60.0


@contextmanager
def stack_on(data: Path, *options: str) -> Iterator[RunningStack]:
    """Run a stack on `data` and free ports for as long as the block lasts.

    Raises `CommandFailed` when it does not start; what it said about that is on stderr already.
    """
    process = _start(data, options)
    try:
        yield _wait_until_ready(process)
    finally:
        _end(process)


def _start(data: Path, options: Sequence[str]) -> subprocess.Popen[str]:
    up = (sys.executable, "-m", "packhorse_services.cli", "up", "--json", "--port", "0")
    return subprocess.Popen(
        [*leash.on_leash(signal.SIGTERM), *up, "--data", str(data), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C ends this command first, which then ends the stack
    )


def _wait_until_ready(process: subprocess.Popen[str]) -> RunningStack:
    if process.stdout is None:
        raise AssertionError("the process was started with a pipe")
    line = process.stdout.readline()
    if not line:
        raise CommandFailed("the stack did not start")
    return RunningStack(**json.loads(line))


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_END_S)
    process.kill()
    process.wait()
