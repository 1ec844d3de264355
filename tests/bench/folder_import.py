"""How many small files a second a folder import takes, new and again.

    python -m tests.bench.folder_import [FILES]

Prints one JSON line a measurement. The anchor is what the import can't do without: reading each
file, and writing it durably to another folder with one flush for all.
"""

import contextlib
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packhorse.blobs.open import open_blobs
from packhorse.db.connect import connect
from packhorse_services.content.transfer.counting import ImportCounts
from packhorse_services.content.transfer.folder_import import FolderImport
from packhorse_services.content.transfer.local_tree import LocalTree
from packhorse_services.content.transfer.sources import open_source
from tests.bench.reporting import emit
from tests.harness.footprint import server_s
from tests.harness.postgres import Databases, running_postgres


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with running_postgres() as server, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "content"
        make_files(folder, files)
        postgres = server.pid()
        anchor = measured("copy_with_one_flush", files, postgres, lambda: copy(folder, scratch))
        databases = Databases(server)
        url = databases.new()
        blobs = str(Path(scratch) / "blobs")
        for name in ("new", "unchanged"):
            measured(name, files, postgres, lambda: run(url, blobs, folder), anchor)


def make_files(folder: Path, files: int) -> None:
    """Files of 1 to 8 KB, 100 a folder, in three levels."""
    chance = random.Random(1)
    for number in range(files):
        path = folder / f"s{number // 10_000}" / f"f{number // 100}" / f"page-{number}.json"
        if number % 100 == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(chance.randbytes(chance.randint(1_000, 8_000)))


def copy(folder: Path, scratch: str) -> None:
    target = Path(scratch) / "copy"
    target.mkdir()
    for number, path in enumerate(folder.rglob("*.json")):
        (target / str(number)).write_bytes(path.read_bytes())
    os.sync()


class Strict:
    """A watcher for whom nothing may be left out."""

    def report(self, counts: ImportCounts) -> None: ...

    def refuse(self, name: str, reason: str) -> None:
        raise RuntimeError(f"{name}: {reason}")

    skip = refuse


def run(url: str, blobs_url: str, folder: Path) -> None:
    blobs = open_blobs(blobs_url)
    with contextlib.closing(connect(url, "bench", autocommit=True)) as conn:
        tree = LocalTree(conn, blobs)
        FolderImport(tree, "/content/bench", Strict()).run(open_source(folder))
    blobs.close()


def measured(
    name: str,
    files: int,
    postgres: int,
    action: Callable[[], Any],
    anchor: float | None = None,
) -> float:
    """Run, print the line, return files a second."""
    cpu, began = time.process_time() + server_s(postgres), time.perf_counter()
    action()
    rate = files / (time.perf_counter() - began)
    used = time.process_time() + server_s(postgres) - cpu
    emit(
        name,
        rate,
        "files/s",
        anchor=None if anchor is None else ("copy_with_one_flush", anchor),
        cpu_us_a_file=used / files * 1e6,
        rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
    return rate


if __name__ == "__main__":
    main()
