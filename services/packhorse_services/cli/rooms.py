"""Runs a room's own command line as a process, told about the stack by its environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import IO

from packhorse_services.cli.api import CommandFailed, Exit
from packhorse_services.cli.connection import Connection


def delegate(connection: Connection, room: str, arguments: Sequence[str]) -> None:
    """Run `python -m packhorse_services.<room> <arguments>` to its end.

    Settings of the environment win over those of the stack on the data folder. Raises
    `CommandFailed` with the room's exit code; the room itself has said why.
    """
    code = forward(connection, room, arguments)
    if code != 0:
        known = code in Exit.__members__.values()
        raise CommandFailed(
            f"packhorse {room} ended with exit code {code}", Exit(code) if known else Exit.FAILED
        )


def forward(
    connection: Connection,
    room: str,
    arguments: Sequence[str],
    output: IO[bytes] | None = None,
    settings: Mapping[str, str] | None = None,
) -> int:
    """Run the room's command line, and return its exit code, 128 and the number for a signal.

    Its standard output goes to `output` where there is one. Ctrl-C reaches the room by itself,
    and it may end in order; SIGTERM is handed on. `settings` win over the environment.
    """
    command = [sys.executable, "-m", f"packhorse_services.{room}", *arguments]
    environment = {**_environment(connection), **(settings or {})}
    process = subprocess.Popen(command, env=environment, stdout=output)
    with _outlasting(process):
        code = process.wait()
    return 128 - code if code < 0 else code


def pipeline(
    connection: Connection,
    arguments: Sequence[str],
    output: IO[bytes] | None = None,
    settings: Mapping[str, str] | None = None,
) -> int:
    """Run the pipeline's command line. Raises `CommandFailed` where it is not installed."""
    missing = [name for name in ("pyspark", "deltalake") if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"the pipeline needs {missing[0]}: pip install 'packhorse[pipeline]'", Exit.USAGE
        )
    return forward(connection, "pipeline", arguments, output, settings)


def _environment(connection: Connection) -> dict[str, str]:
    """Return ours with the stack's settings, unless ours say the same or name a file for it."""
    stack = connection.directory.author_settings()
    unsaid = {name: value for name, value in stack.items() if f"{name}_FILE" not in os.environ}
    return {**unsaid, **os.environ}


@contextmanager
def _outlasting(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave Ctrl-C to the child, which gets it from the terminal too."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
