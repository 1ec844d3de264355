"""How many small files a second a folder import takes, new and again.

    python -m tests.bench.folder_import [FILES]

Prints one JSON line a measurement. The anchor is what the import can't do without: reading each
file, and writing it durably to another folder with one flush for all.
"""

import contextlib
import json
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
        for name in ("folder_import_new", "folder_import_unchanged"):
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
    load = os.getloadavg()[0]
    cpu, began = process_cpu() + postgres_cpu(postgres), time.perf_counter()
    action()
    rate = files / (time.perf_counter() - began)
    used = process_cpu() + postgres_cpu(postgres) - cpu
    line = {
        "name": name,
        "value": round(rate),
        "unit": "files/s",
        "anchor": "copy_with_one_flush" if anchor else None,
        "ratio": round(rate / anchor, 3) if anchor else None,
        "cpu_us_per_file": round(used / files * 1e6),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "load_before": round(load, 2),
    }
    print(json.dumps(line), flush=True)
    return rate


def process_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def postgres_cpu(postmaster: int) -> float:
    """Return the seconds of the server, of its processes and of those that have ended."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(entry.name) == postmaster:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == postmaster:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
