"""`packhorse openapi`: the documents of the APIs, as this version has them."""

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from packhorse_services.cli.client import output
from packhorse_services.cli.client.failures import CommandFailed, Exit

_INSTALLED = Path(__file__).parent / "documents"
"""Where the wheel has them; a checkout has them at its root."""
_FOLDERS = ("openapi", "asyncapi", "proto")


class ApiDocument(StrEnum):
    """What can be printed: the OpenAPI document of a service, or the AsyncAPI one of the events."""

    CLEANUP = "cleanup"
    CONSOLE = "console"
    CONTENT = "content"
    JOBS = "jobs"
    PIPELINE = "pipeline"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"
    TOPOLOGY = "topology"
    EVENTS = "events"

    @property
    def path(self) -> Path:
        """Where it is, relative to all of them."""
        folder = "asyncapi" if self is ApiDocument.EVENTS else "openapi"
        return Path(folder, f"{self}.yaml")


Which = Annotated[ApiDocument | None, typer.Argument(help="Which one to print; none lists them.")]
Folder = Annotated[
    Path | None,
    typer.Option(help="Write all of them here, with the protobuf messages of the journal."),
]


def openapi(document: Which = None, folder: Folder = None) -> None:
    """Print the OpenAPI document of a service, or the AsyncAPI document of the events."""
    root = documents()
    if folder is not None:
        _write_all(root, folder)
    if document is not None:
        sys.stdout.write((root / document.path).read_text())
    elif folder is None:
        for each in ApiDocument:
            output.line(each)


def _write_all(root: Path, folder: Path) -> None:
    if any((folder / name).resolve() == (root / name).resolve() for name in _FOLDERS):
        raise CommandFailed(f"{folder} is the folder that holds them; name another one", Exit.USAGE)
    try:
        for name in _FOLDERS:
            shutil.copytree(root / name, folder / name, dirs_exist_ok=True)
    except shutil.Error as error:  # with a source, a target and a reason for each that failed
        raise CommandFailed(f"{folder} can't be written: {error.args[0][0][2]}") from error
    except OSError as error:
        raise CommandFailed(f"{folder} can't be written: {error.strerror}") from error


def documents() -> Path:
    """Return the folder that holds `openapi`, `asyncapi` and `proto`."""
    return _INSTALLED if _INSTALLED.exists() else Path(__file__).parents[3]
