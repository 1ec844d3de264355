"""`at --restore` is killed around its one commit and run again: all or nothing is there."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.content import tree
from packhorse_services.pipeline.at import task
from tests.harness.feed import page
from tests.harness.fold import Content
from tests.harness.processes import Process
from tests.harness.restore_subject import Rows
from tests.harness.subscriber import content_in

TASK = "packhorse_services.pipeline.at.task"
PAST = [f"/s/{number}" for number in range(5)]


class Author:
    """An author's repository, the subtree `/s` of its past, and who puts that back."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        rows = [[path, "page", '{"version": 1}', "{}"] for path in ["/s", *PAST]]
        (folder / "past").write_text("\n".join(map(json.dumps, rows)))
        with psycopg.connect(url) as connection:
            tree.upsert(connection, [page("/s/new", 2), page("/t", 2)])

    @property
    def paths(self) -> set[str]:
        with psycopg.connect(self.url) as connection:
            found: Content = content_in(connection)
        return set(found)

    def restore(self) -> None:
        """Put the past back."""
        rows: Any = Rows(str(self.folder / "past"))
        task.restore(rows, "/s", self.url)

    def restore_until_killed(self, point: str, *broken: str) -> int:
        """Put the past back in a process of its own; returns how that has ended."""
        deadly = ("-m", "tests.harness.killed_program", point)
        subject = ("tests.harness.restore_subject", str(self.folder / "past"), "/s", *broken)
        settings = {"PACKHORSE_DATABASE_URL": self.url}
        run = Process("restore", (sys.executable, *deadly, *subject), settings, self.folder)
        run.start()
        return run.wait(120)


BEFORE = {"/s", "/s/new", "/t"}
AFTER = {"/s", *PAST, "/t"}


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Author:
    return Author(database_url, tmp_path)


@pytest.mark.parametrize(
    ("point", "there"),
    [
        (f"{TASK}:node_of@after3", BEFORE),
        ("packhorse.content.tree:replace@after1", BEFORE),
        (f"{TASK}:restore@after1", AFTER),
    ],
)
def test_a_restore_that_is_killed_did_all_or_nothing_and_is_run_again(
    author: Author, point: str, there: set[str]
) -> None:
    assert author.restore_until_killed(point) == -signal.SIGKILL
    assert author.paths == there
    author.restore()
    assert author.paths == AFTER


@pytest.mark.proof
def test_a_restore_in_two_transactions_is_noticed(author: Author) -> None:
    ended = author.restore_until_killed(f"{TASK}:node_of@after3", "broken")
    assert ended == -signal.SIGKILL
    assert author.paths not in (BEFORE, AFTER)
