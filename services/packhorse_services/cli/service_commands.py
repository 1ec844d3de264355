"""Runs a service's own command line with the stack's settings, here or as a process."""

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import IO, NoReturn

from packhorse.client.addresses import origin
from packhorse.runtime.extras import how_to_install
from packhorse.runtime.startup import TYPED
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit

_HELP = {"-h", "--help"}
_DATABASES = {"PACKHORSE_DATABASE_URL", "PACKHORSE_DATABASE_URL_FILE"}
_PUBLISHER = "PACKHORSE_PUBLISHER_URL"
_CLOSE = 0.8
"""How alike two options are of which one is the other misspelt; no option of a task is that."""


def content(connection: Connection, arguments: Sequence[str]) -> NoReturn:
    """Become the content service's command line on what `--server` names, or on the stack's tree.

    Raises `CommandFailed` where neither is given.
    """
    settings = None
    if connection.server:
        settings = {
            "PACKHORSE_SERVER": connection.server,
            "PACKHORSE_TOKEN": connection.token() or "",
        }
    elif not (_HELP & set(arguments) or _DATABASES & os.environ.keys()):
        connection.require_running()
    become(connection, "content", arguments, settings)


def become(
    connection: Connection,
    service: str,
    arguments: Sequence[str],
    settings: Mapping[str, str] | None = None,
) -> NoReturn:
    """Go on as the service's command line, whose end is that of this process, by `SystemExit`.

    What both import is imported once. `settings` win over the environment, and the files it names.
    """
    for name in settings or ():
        os.environ.pop(f"{name}_FILE", None)
    os.environ.update(_environment(connection, service), **(settings or {}))
    sys.argv = [service, *arguments]
    import_module(f"packhorse_services.{service}.__main__").main()
    sys.exit()


def write_to(
    output: IO[bytes], connection: Connection, service: str, arguments: Sequence[str]
) -> int:
    """Run the service's command line here, and return its exit code.

    Its standard output is a file meanwhile. Only for what goes on without the service's settings:
    they stay in the environment of this process.
    """
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(output.fileno(), 1)
    try:
        become(connection, service, arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        return end.code or 0
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)


def forward(connection: Connection, service: str, arguments: Sequence[str]) -> int:
    """Run the service's command line as a process, and return its exit code.

    The process ends with the call, also where that raises.
    """
    command = [sys.executable, "-m", f"packhorse_services.{service}", *arguments]
    return subprocess.call(command, env=_environment(connection, service))


_NOT_OF_TASKS = {
    **{f"--{name}": f"write packhorse pipeline TASK --{name} …" for name in ("data", "token-file")},
    **{
        f"--{name}": f"a task has it from PACKHORSE_{name.upper()}_URL, or from the stack"
        for name in ("journal", "blobs", "tables", "database")
    },
}
"""Options of other commands, and how the pipeline's tasks get the same."""


def require_options_of_tasks(arguments: Sequence[str]) -> None:
    """Raise `CommandFailed` for an option that is another command's, also when it is misspelt.

    The pipeline's program does not know them, and could suggest nothing.
    """
    for argument in itertools.takewhile(lambda one: one != "--", arguments):
        name = argument.partition("=")[0]
        meant = get_close_matches(name, _NOT_OF_TASKS, n=1, cutoff=_CLOSE)
        if name.startswith("--") and meant:
            raise CommandFailed(
                f"a task of the pipeline has no option {name}; if you mean {meant[0]}, "
                f"{_NOT_OF_TASKS[meant[0]]}",
                Exit.USAGE,
            )


def pipeline(
    connection: Connection, arguments: Sequence[str], settings: Mapping[str, str] | None = None
) -> NoReturn:
    """Become the pipeline's command line. Raises `CommandFailed` where it is not installed."""
    require_pipeline()
    become(connection, "pipeline", arguments, settings)


def require_pipeline() -> None:
    """Raise `CommandFailed` where the pipeline is not installed."""
    missing = [name for name in ("pyspark", "deltalake") if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"the pipeline needs {missing[0]}: {how_to_install('pipeline')}", Exit.USAGE
        )


def _environment(connection: Connection, service: str) -> dict[str, str]:
    """Return ours with the stack's settings, unless ours say the same or name a file for it.

    The stack's token is left out where ours name another publisher.
    """
    stack = connection.directory.author_settings()
    own, named = (one.get(_PUBLISHER) for one in (stack, os.environ))
    if f"{_PUBLISHER}_FILE" in os.environ or (own and named and origin(named) != origin(own)):
        stack.pop("PACKHORSE_PUBLISHER_TOKEN", None)
    unsaid = {name: value for name, value in stack.items() if f"{name}_FILE" not in os.environ}
    typed = {TYPED: f"packhorse {service}"}  # for the usage that it prints
    return {**unsaid, **os.environ, **typed}
