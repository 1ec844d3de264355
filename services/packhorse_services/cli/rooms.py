"""Runs a room's own command line as a process, told about the stack by its environment."""

import os
import subprocess
import sys
from collections.abc import Sequence

from packhorse_services.cli.api import CommandFailed, Exit
from packhorse_services.cli.connection import Connection


def delegate(connection: Connection, room: str, arguments: Sequence[str]) -> None:
    """Run `python -m packhorse_services.<room> <arguments>` to its end.

    Settings of the environment win over those of the stack on the data folder. Raises
    `CommandFailed` with the room's exit code; the room itself has said why.
    """
    settings = {**connection.directory.author_settings(), **os.environ}
    command = [sys.executable, "-m", f"packhorse_services.{room}", *arguments]
    code = subprocess.run(command, env=settings, check=False).returncode
    if code != 0:
        known = code in Exit.__members__.values()
        raise CommandFailed(
            f"packhorse {room} ended with exit code {code}", Exit(code) if known else Exit.FAILED
        )
