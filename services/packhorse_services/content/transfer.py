"""The commands that move folders into the tree and out of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse_services.content.folder_export import FolderExport
from packhorse_services.content.folder_import import FolderImport
from packhorse_services.content.migration import migrate
from packhorse_services.content.progress import Telling
from packhorse_services.content.settings import Settings, load
from packhorse_services.content.sources import open_source

_UNHURRIED = Timeouts(statement_ms=600_000, lock_ms=60_000, idle_in_transaction_ms=0)
"""A transaction of an export lasts as long as its binaries take."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]


def import_command(
    source: Annotated[Path, typer.Argument(help="A folder or a zip archive.", exists=True)],
    at: Annotated[str, typer.Option("--at", help="The path that receives what SOURCE holds.")],
    as_json: JsonOption = False,
) -> None:
    """Import files: each becomes a node, its bytes a binary. Run it again to go on.

    Exits with 1 when an entry was refused; the others are imported.
    """
    entries = open_source(source)
    settings = load()
    migrate(settings)
    total = entries.count() if Telling.on_terminal() else None
    with _author(settings) as (conn, blobs), Telling("imported", total) as telling:
        importing = FolderImport(conn, blobs, at, report=telling.report, refuse=telling.refuse)
        counts = importing.run(entries)
    telling.conclude(counts, as_json=as_json)
    raise typer.Exit(1 if counts.refused else 0)


def export_command(
    path: Annotated[str, typer.Argument(help="The path to export, with all below it.")],
    target: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Export files and folders, byte by byte. Exits with 1 when a node was refused."""
    with _author(load()) as (conn, blobs), Telling("exported") as telling:
        exporting = FolderExport(conn, blobs, target, report=telling.report, refuse=telling.refuse)
        counts = exporting.run(path)
    telling.conclude(counts, as_json=as_json)
    raise typer.Exit(1 if counts.refused else 0)


@contextmanager
def _author(settings: Settings) -> Iterator[tuple[psycopg.Connection, BlobStore]]:
    url = settings.database_url.get_secret_value()
    blobs = open_blobs(settings.blobs_url)
    conn = connect(url, "packhorse-content", timeouts=_UNHURRIED, autocommit=True)
    try:
        yield conn, blobs
    finally:
        conn.close()
        blobs.close()
