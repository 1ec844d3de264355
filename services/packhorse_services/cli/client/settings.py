"""What the command line takes from the environment when no option says otherwise."""

import os
from pathlib import Path
from typing import Annotated

import typer

from packhorse_services.cli.client.failures import CommandFailed, Exit

# Below the range that systems hand out to outgoing connections: such a port stays free while
# the program that was given it is down for a restart.
_PORTS = "10000-29999"

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        envvar="PACKHORSE_DATA",
        show_default="/var/lib/packhorse as root, else ~/.local/share/packhorse",
        help="The folder of the embedded stack.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="PACKHORSE_SERVER",
        show_default="the stack that runs on --data",
        help="The service's URL: the publisher's; the content's, topology's or jobs' for what is "
        "theirs.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="PACKHORSE_TOKEN", help="A bearer token.", show_default=False),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="PACKHORSE_TOKEN_FILE",
        show_default="that of the stack on --data, for the stack's own servers",
        help="A file with a token: its text, or a packhorse token file.",
    ),
]


def _journal_in_file() -> str | None:
    """Return what the file says that the programs of a deployment read."""
    source = os.environ.get("PACKHORSE_JOURNAL_URL_FILE")
    if not source:
        return None
    from packhorse.runtime.configuration import setting_in  # pydantic takes its time

    try:
        return setting_in(Path(source))
    except ValueError as error:
        raise CommandFailed(f"PACKHORSE_JOURNAL_URL_FILE: {error}", Exit.USAGE) from error


JournalOption = Annotated[
    str | None,
    typer.Option(
        "--journal",
        envvar="PACKHORSE_JOURNAL_URL",
        default_factory=_journal_in_file,
        show_default="that of PACKHORSE_JOURNAL_URL_FILE, or of the stack on --data",
        help="postgresql://… or kafka://host:port?setting=value.",
    ),
]


def port_range() -> range:
    """Return the ports that the stack's programs may be given; `PACKHORSE_PORTS` says which.

    Raises `CommandFailed` when that is no range such as 10000-29999.
    """
    text = os.environ.get("PACKHORSE_PORTS", _PORTS)
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65_536):
        raise CommandFailed(f"PACKHORSE_PORTS is no range such as {_PORTS}: {text!r}", Exit.USAGE)
    return range(int(first), int(last) + 1)
