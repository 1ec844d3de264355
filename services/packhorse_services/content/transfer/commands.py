"""The commands that move folders and ZIP files into a tree and out of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from packhorse.blobs.open import open_blobs
from packhorse.content.node import check_path
from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.prepare import prepare_database
from packhorse.runtime.configuration import loaded
from packhorse_services.content.settings import Settings
from packhorse_services.content.transfer.folder_export import FolderExport
from packhorse_services.content.transfer.folder_import import FolderImport, ImportCounts
from packhorse_services.content.transfer.local_tree import LocalTree
from packhorse_services.content.transfer.progress import TransferProgress
from packhorse_services.content.transfer.remote_tree import RemoteTree
from packhorse_services.content.transfer.service_client import Service
from packhorse_services.content.transfer.sources import open_source
from packhorse_services.content.transfer.targets import open_target

_UNHURRIED = Timeouts(statement_ms=600_000, lock_ms=60_000, idle_in_transaction_ms=0)
"""A transaction of an export lasts as long as its binaries take."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="PACKHORSE_SERVER",
        show_default="the author's database and blob store",
        help="A content service's URL, or for an export also a subscriber's.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="PACKHORSE_TOKEN", help="For --server.", show_default=False),
]


def import_command(
    source: Annotated[Path, typer.Argument(help="A folder or a ZIP file.", exists=True)],
    at: Annotated[str, typer.Option("--at", help="The path that receives what SOURCE holds.")],
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Import files: each becomes a node, its bytes a binary. Run it again to go on.

    Links and devices are left out, and named. Exits with 1 when an entry was refused; the others
    are imported.
    """
    check_path(at)
    entries = open_source(source)
    total = entries.count() if TransferProgress.on_terminal() else None
    with _tree(server, token, writes=True) as tree, TransferProgress("imported", total) as progress:
        importing = FolderImport(
            tree, at, report=progress.report, refuse=progress.refuse, skip=progress.skip
        )
        counts = importing.run(entries)
    _end(progress, counts, as_json=as_json)


def export_command(
    path: Annotated[str, typer.Argument(help="The path to export, with all below it.")],
    target: Annotated[
        Path, typer.Argument(help="A folder that is empty or does not exist, or a new file.zip.")
    ],
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Export files and folders, byte by byte.

    Exits with 1 when something was left out: it is named, with the reason.
    """
    check_path(path)
    with (
        _tree(server, token, writes=False) as tree,
        open_target(target) as opened,
        TransferProgress("exported") as progress,
    ):
        exporting = FolderExport(
            tree, opened, report=progress.report, refuse=progress.refuse, skip=progress.skip
        )
        counts = exporting.run(path)
    _end(progress, counts, as_json=as_json, complete=counts.skipped == 0)


def _end(
    progress: TransferProgress, counts: ImportCounts, *, as_json: bool, complete: bool = True
) -> None:
    progress.conclude(counts, as_json=as_json)
    raise typer.Exit(0 if complete and not counts.refused else 1)


@contextmanager
def _tree(
    server: str | None, token: str | None, *, writes: bool
) -> Iterator[LocalTree | RemoteTree]:
    """Lend the tree of a server, or that of the database in the settings."""
    if server:
        with Service(server, token) as service:
            yield RemoteTree(service)
        return
    settings = loaded(Settings)
    url = settings.database_url.get_secret_value()
    if writes:
        prepare_database(url, "packhorse-content")
    blobs = open_blobs(settings.blobs_url)
    conn = connect(url, "packhorse-content", timeouts=_UNHURRIED, autocommit=True)
    try:
        yield LocalTree(conn, blobs)
    finally:
        conn.close()
        blobs.close()
