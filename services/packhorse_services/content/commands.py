"""The commands that move folders and ZIP files into a tree and out of it."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from packhorse.blobs.open import open_blobs
from packhorse.client.errors import Misused
from packhorse.content.node import ROOT, check_path
from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.prepare import prepare_database
from packhorse.runtime.configuration import loaded
from packhorse.runtime.plain_text import one_line
from packhorse_services.content.filevault.exporting import PackageExport
from packhorse_services.content.filevault.importing import PackageImport
from packhorse_services.content.filevault.package import ContentPackage
from packhorse_services.content.filevault.workspace_filter import PATH as FILTER
from packhorse_services.content.settings import Settings
from packhorse_services.content.transfer.counting import ImportCounts
from packhorse_services.content.transfer.folder_export import FolderExport
from packhorse_services.content.transfer.folder_import import FolderImport
from packhorse_services.content.transfer.local_tree import LocalTree
from packhorse_services.content.transfer.remote_tree import RemoteTree, client_of
from packhorse_services.content.transfer.sources import open_source
from packhorse_services.content.transfer.targets import open_target

_LINE_EVERY_S = 5.0
_WORDS = {"skipped": "left out"}
_NAMED = 100


class TransferProgress:
    """Talks on standard error while a transfer runs, and prints its result on standard output."""

    def __init__(self, verb: str, total: int | None = None) -> None:
        self._verb = verb
        self._console = Console(stderr=True)
        self._began = time.monotonic()
        self._last_line = self._began
        self._named: Counter[str] = Counter()
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(verb, total=total)

    @staticmethod
    def on_terminal() -> bool:
        """Whether somebody watches."""
        return sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def report(self, counts: ImportCounts) -> None:
        """Show how far it is."""
        done = counts.files + counts.folders + counts.unchanged + counts.skipped + counts.refused
        text = (
            f"{counts.files} files, {counts.bytes / 1e6:.1f} MB, {self._rate(counts):.0f} files/s"
        )
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, description=text)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._say(f"{self._verb}: {text}, {counts.unchanged} unchanged")

    def refuse(self, name: str, reason: str) -> None:
        """Say what was refused and why; names are shown escaped, for they may hold anything."""
        self._name("refused", name, reason)

    def skip(self, name: str, reason: str) -> None:
        """Say what was left out and why."""
        self._name("left out", name, reason)

    def _name(self, what: str, name: str, reason: str) -> None:
        self._named[what] += 1
        if self._named[what] <= _NAMED:
            self._say(one_line(f"{what}: {name[:300]!r}: {reason[:300]}"))
        elif self._named[what] == _NAMED + 1:
            self._say(f"{what}: and more, which are only counted")

    def conclude(self, counts: ImportCounts, *, as_json: bool) -> None:
        """Print the result."""
        seconds = time.monotonic() - self._began
        if as_json:
            result = {**asdict(counts), "seconds": round(seconds, 3)}
            sys.stdout.write(json.dumps(result) + "\n")
            return
        given = asdict(counts).items()
        reported = [f"{number} {_WORDS.get(name, name)}" for name, number in given if number]
        sys.stdout.write(f"{self._verb}: {', '.join(reported) or 'nothing'} in {seconds:.1f} s\n")

    def _rate(self, counts: ImportCounts) -> float:
        return (counts.files + counts.unchanged) / max(0.001, time.monotonic() - self._began)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


_WRITING = Timeouts(statement_ms=600_000, lock_ms=60_000)
_READING = replace(_WRITING, idle_in_transaction_ms=0)
"""A transaction of an export lasts as long as its binaries take; it keeps nobody out."""

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

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        help="The path that receives what SOURCE holds; for a content package /.",
        show_default=False,
    ),
]

FilesOption = Annotated[
    bool, typer.Option("--as-files", help="Take a content package as the files that it holds.")
]


def import_command(
    source: Annotated[Path, typer.Argument(help="A folder or a ZIP file.", exists=True)],
    at: AtOption = None,
    as_files: FilesOption = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Import files: each becomes a node, its bytes a binary. Run it again to go on.

    Links and devices are left out, and named. Exits with 1 when an entry was
    refused; the others are imported. A FileVault content package (with
    META-INF/vault/filter.xml) becomes the nodes that it describes, of those
    paths that its filter covers; nothing is removed.
    """
    entries = open_source(source)
    is_package = not as_files and entries.has_file(FILTER)
    if at is None and not is_package:
        raise Misused("say with --at which path receives the files")
    where = check_path(at or ROOT)
    total = entries.count() if TransferProgress.on_terminal() else None
    with _tree(server, token, writes=True) as tree, TransferProgress("imported", total) as progress:
        if is_package:
            counts = PackageImport(tree, progress).run(ContentPackage(entries, where))
        else:
            counts = FolderImport(tree, where, progress).run(entries)
    _end(progress, counts, as_json=as_json)


def export_command(
    path: Annotated[str, typer.Argument(help="The path to export, with all below it.")],
    target: Annotated[
        Path, typer.Argument(help="A folder that is empty or does not exist, or a new file.zip.")
    ],
    as_package: Annotated[
        bool,
        typer.Option("--as-package", help="Write a FileVault content package, with all nodes."),
    ] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
) -> None:
    """Export files and folders, byte by byte, or with --as-package nodes of every type.

    Exits with 1 when something was left out: it is named, with the reason.
    """
    check_path(path)
    with (
        _tree(server, token, writes=False) as tree,
        open_target(target) as opened,
        TransferProgress("exported") as progress,
    ):
        kind = PackageExport if as_package else FolderExport
        counts = kind(tree, opened, progress).run(path)
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
        with client_of(server, token) as client:
            yield RemoteTree(client)
        return
    settings = loaded(Settings)
    url = settings.database_url.get_secret_value()
    if writes:
        prepare_database(url, "packhorse-content")
    blobs = open_blobs(settings.blobs_url)
    timeouts = _WRITING if writes else _READING
    conn = connect(url, "packhorse-content", timeouts=timeouts, autocommit=True)
    try:
        yield LocalTree(conn, blobs)
    finally:
        conn.close()
        blobs.close()
