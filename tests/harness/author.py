"""The content program's commands, run on an author's database and blob store."""

import contextlib
import io
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import psycopg
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.db.connect import connect
from packhorse_services.content.__main__ import main


class Done(NamedTuple):
    """What a run has said."""

    stdout: str
    stderr: str


class Author:
    """An author's database and blob store, and the program run on them."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.url = database_url
        self.blobs_url = str(folder / "blobs")
        self.environment = {
            **os.environ,
            "PACKHORSE_DATABASE_URL": database_url,
            "PACKHORSE_BLOBS_URL": self.blobs_url,
        }

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "packhorse_services.content", *map(os.fspath, arguments)]  # type: ignore[arg-type]

    def run(self, *arguments: object, code: int = 0) -> Done:
        """Run the program in this process, which spares its start."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch.object(sys, "argv", self.command(*arguments)[2:]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        reported = ended.value.code if isinstance(ended.value.code, str) else ""
        assert (1 if reported else ended.value.code or 0) == code, err.getvalue() + reported
        return Done(out.getvalue(), err.getvalue() + reported)

    def imported(self, source: Path, at: str, code: int = 0) -> dict[str, Any]:
        done = self.run("import", source, "--at", at, "--json", code=code)
        return dict(json.loads(done.stdout))

    def nodes(self, path: str = "/") -> dict[str, Node]:
        with self.connection() as conn:
            return {node.path: node for node in tree.stream(conn, path)}

    @contextlib.contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        with contextlib.closing(connect(self.url, "tests")) as conn:
            yield conn
            conn.commit()


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def some_content(folder: Path, files: int = 60) -> Path:
    chance = random.Random(7)
    for number in range(files):
        path = folder / f"s {number % 3}" / f"é-{number % 7}" / f"page-{number}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.choice([0, 10, 3_000, 300_000])))
    (folder / "empty").mkdir()
    (folder / "large.bin").write_bytes(b"large" * 2_000_000)
    return folder


def check_binaries(author: Author) -> None:
    """Whatever a node refers to is in the blob store, whole."""
    store = open_blobs(author.blobs_url)
    stored = {blob.key.rpartition("/")[2]: blob.length for blob in store.list("binaries/")}
    store.close()
    for node in author.nodes().values():
        for binary in node.binaries:
            assert stored[binary.sha256] == binary.length
