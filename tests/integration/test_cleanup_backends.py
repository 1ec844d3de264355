"""R21 with a real publisher, on both journals and both stores; and killed as a process."""

import os
import secrets
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from packhorse.blobs.api import BlobStore, package_key
from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.cleanup.report import CleanupRun, ReasonTotal
from packhorse_services.cleanup.runner import run_by_hand
from packhorse_services.cleanup.sweep import Sweep
from tests.harness.cleanup import TOPIC, AgingFolder, Stage
from tests.harness.kafka.broker import RunningKafka
from tests.harness.noise import noise
from tests.harness.postgres import Databases
from tests.harness.processes import Process
from tests.harness.publishing import Author, publish, request
from tests.harness.s3 import S3Server
from tests.harness.traced import run_until_send
from tests.harness.waiting import eventually


@pytest.fixture(params=["sql", pytest.param("kafka", marks=pytest.mark.kafka)])
def journal(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Journal]:
    if request.param == "sql":
        url = databases.new("journal")
    else:
        kafka: RunningKafka = request.getfixturevalue("kafka")
        url = kafka.url
    journal = open_journal(url, client_name="tests")
    yield journal
    journal.close()


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    url = str(tmp_path / "blobs")
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        url = server.url(f"cleanup-{secrets.token_hex(4)}")
    blobs = open_blobs(url)
    yield blobs
    blobs.close()


def _author(database_url: str, journal: Journal, blobs: BlobStore) -> Author:
    return Author(database_url, journal, blobs, Topics.named(f"cleanup-{secrets.token_hex(4)}", {}))


def _run(author: Author, grace: timedelta = timedelta(hours=24)) -> CleanupRun:
    sweep = Sweep(author.journal, author.topics.package, author.blobs, grace)
    return run_by_hand(author.database_url, sweep, dry_run=False)


def test_r21_end_to_end(database_url: str, journal: Journal, blobs: BlobStore) -> None:
    author = _author(database_url, journal, blobs)
    topic = author.topics.package
    try:
        replica = author.replica()
        for name in "ab":
            text = noise()
            author.write(Node(f"/content/{name}", "page", f'{{"text": "{text}"}}'))
            publish(replica, request(f"/content/{name}"))
        first, second = author.journaled()
        keys = [package_key(placed.message.entry.package_id) for placed in (first, second)]
        assert all(blobs.head(key) for key in keys)
        assert _run(author).totals == {}
        journal.truncate(topic, second.offset)
        length = blobs.head(keys[0]).length  # type: ignore[union-attr]
        assert _run(author).totals == {"forgotten": ReasonTotal(1, length)}
        assert blobs.head(keys[0]) is None
        assert blobs.head(keys[1]) is not None
    finally:
        author.close()


def test_an_orphan_goes_by_the_stores_own_clock(
    database_url: str, journal: Journal, blobs: BlobStore
) -> None:
    author = _author(database_url, journal, blobs)
    key = package_key(f"dstrpck-1-{secrets.token_hex(4)}")
    blobs.put(key, [b"body"])
    assert _run(author).kept["young_orphans"] == 1
    assert blobs.head(key) is not None
    eventually(  # a store may give whole seconds only
        lambda: _run(author, timedelta(milliseconds=1)).totals == {"orphan": ReasonTotal(1, 4)}
    )
    assert blobs.head(key) is None
    author.close()


@pytest.mark.chaos
def test_killed_at_any_send_it_loses_nothing_and_the_next_run_finishes(
    databases: Databases, tmp_path: Path
) -> None:
    stride = int(os.environ.get("TEST_CRASH_STRIDE", "31"))
    url, journal_url = databases.new(), databases.new("journal")
    stage = Stage(
        url, AgingFolder(tmp_path / "blobs"), open_journal(journal_url, client_name="tests")
    )
    settings = {"DATABASE_URL": url, "JOURNAL_URL": journal_url, "BLOBS_URL": tmp_path / "blobs"}
    environment = {f"PACKHORSE_{name}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "packhorse_services.cleanup", "run"]
    killed = 0
    for point in range(1, 400, stride):
        going, orphan, kept = stage.publish(), stage.put(), stage.publish()
        stage.forget_log(stage.journal.bounds(TOPIC).next - 1)
        stage.run()
        stage.let_pass()
        stage.publish()
        died = run_until_send(Process("cleanup", command, environment, tmp_path), point, "-f")
        assert stage.has(kept)
        stage.run()
        assert stage.has(kept)
        assert not stage.has(going)
        assert not stage.has(orphan)
        if not died:
            break
        killed += 1
    stage.close()
    assert not died
    assert killed >= max(1, 40 // stride)
