"""R5 and R6 under load: threads that edit and distribute the same paths through two replicas."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.messaging.open import open_journal
from packhorse.packages.body import unpack
from packhorse.runtime.metrics import PUBLISHER_EARLY_EXPORTS
from packhorse.wire.topics import Topics
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.publish.publishing import Publishing
from packhorse_services.publisher.publish.request_intake import RequestIntake
from tests.harness.depth import at_depth
from tests.harness.exporters import running
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases, waiting_for_locks
from tests.harness.publishing import Author, AwayJournal, LossyJournal, page, publish, request
from tests.harness.waiting import eventually

PATHS = [f"/contended/{number}" for number in range(20)]
THREADS, ROUNDS = 8, at_depth(40, 20)


JOURNALS = ["memory", "sql", pytest.param("kafka", marks=pytest.mark.kafka)]
ONE_JOURNAL = [
    pytest.param("memory", marks=pytest.mark.depth),
    "sql",
    pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.depth]),
]
"""For what is in front of the journal: before the lock, or a journal that loses by itself."""


@pytest.fixture(params=["memory"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal in memory, or the one that the test asks for."""
    match request.param:
        case "sql":
            databases: Databases = request.getfixturevalue("databases")
            return databases.new("journal")
        case "kafka":
            broker: RunningKafka = request.getfixturevalue("kafka")
            return broker.url
    return f"memory://{tmp_path}"


@pytest.fixture
def author(database_url: str, journal_url: str, tmp_path: Path) -> Iterator[Author]:
    journal = open_journal(journal_url, client_name="tests")
    topics = Topics.named(f"order-{time.time_ns()}", {})
    author = Author(database_url, journal, open_blobs(str(tmp_path / "blobs")), topics)
    author.write(*(page(path) for path in PATHS))
    yield author
    author.close()
    journal.close()


def exporters_of(*publishings: Publishing) -> list[RequestIntake]:
    return [RequestIntake(publishing, SystemClock()) for publishing in publishings]


class Versions:
    """Gives every edit of a path a version that grows with the order of the commits."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._locks = {path: threading.Lock() for path in PATHS}
        self._last = dict.fromkeys(PATHS, 0)

    def edit(self, path: str) -> int:
        with self._locks[path]:
            self._last[path] += 1
            self._author.write(page(path, self._last[path]))
            return self._last[path]


Ask = Callable[[str, str], DistributionRequest]


def edit_and_distribute(
    seed: int, versions: Versions, exporters: list[RequestIntake], ask: Ask
) -> list[tuple[str, str, int, int | None]]:
    """Return package id, path, version at least, and offset of each distribution."""
    chance = random.Random(seed)
    done = []
    for _ in range(ROUNDS):
        path = chance.choice(PATHS)
        version = versions.edit(path)
        other = chance.choice(PATHS)
        pending = chance.choice(exporters).submit(ask(path, other))
        accepted = pending.future.result(120)
        done.append((accepted.package_id, path, version, accepted.offset))
    return done


def play(
    author: Author, exporters: list[RequestIntake], ask: Ask = request
) -> list[tuple[str, str, int, int | None]]:
    versions = Versions(author)
    with running(exporters), ThreadPoolExecutor(THREADS) as pool:
        plays = [
            pool.submit(edit_and_distribute, seed, versions, exporters, ask)
            for seed in range(THREADS)
        ]
        return [done for played in plays for done in played.result()]


def carried(author: Author) -> Iterator[tuple[int, str, str, int]]:
    """Yield offset, package id, path and version of everything in the journal, in order."""
    for placed in author.journaled():
        for node in unpack(placed.message, author.blobs):
            if node.path in PATHS:
                version = json.loads(node.properties)["version"]
                yield placed.offset, placed.message.entry.package_id, node.path, version


def stale(author: Author) -> list[tuple[int, str]]:
    """Return where a package carries an older state than one below it."""
    newest = dict.fromkeys(PATHS, 0)
    found = []
    for offset, _, path, version in carried(author):
        if version < newest[path]:
            found.append((offset, path))
        newest[path] = max(version, newest[path])
    return found


@pytest.mark.parametrize("journal_url", JOURNALS, indirect=True)
def test_r6_no_stale_overwrite_however_many_race(author: Author) -> None:
    check(author, play(author, exporters_of(author.replica(), author.replica())))


@pytest.mark.parametrize("journal_url", ONE_JOURNAL, indirect=True)
def test_r6_no_stale_overwrite_by_what_is_exported_before_the_lock(author: Author) -> None:
    chance = random.Random(1)

    def ask(path: str, other: str) -> DistributionRequest:
        match chance.randrange(6):
            case 0:
                return request(other, deep=["/contended"])
            case 1 | 2:
                return request(deep=[path, other])
        return request(path, other)

    exporters = [
        RequestIntake(author.replica(), SystemClock(), early=author.early()) for _ in range(2)
    ]
    before = [early_exports(outcome) for outcome in ("used", "stale", "under_lock")]
    check(author, play(author, exporters, ask))
    after = [early_exports(outcome) for outcome in ("used", "stale", "under_lock")]
    assert all(now > then for now, then in zip(after, before, strict=True))


def early_exports(outcome: str) -> float:
    return PUBLISHER_EARLY_EXPORTS.labels(outcome)._value.get()


def check(author: Author, done: list[tuple[str, str, int, int | None]]) -> None:
    """Nothing is stale, nothing missing, nothing twice, and all is where it was reported to be."""
    assert stale(author) == []
    versions = {(package_id, path): v for _, package_id, path, v in carried(author)}
    assert all(versions[package_id, path] >= version for package_id, path, version, _ in done)
    placed = author.journaled()
    offsets = {one.message.entry.package_id: one.offset for one in placed}
    assert len(placed) == len(done) == THREADS * ROUNDS
    assert all(offsets[package_id] == offset for package_id, _, _, offset in done)
    numbers = [one.number for one in placed]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("journal_url", ONE_JOURNAL, indirect=True)
def test_r5_replicas_race_on_a_journal_that_loses_acknowledgements(author: Author) -> None:
    lossy = LossyJournal(author.journal, random.Random(1), faults=0.2)
    replicas = author.replica(journal=lossy), author.replica(journal=lossy)
    done = play(author, exporters_of(*replicas))
    author.replica().reconcile()
    assert lossy.lost_records
    assert lossy.lost_acknowledgements
    ids = [one.message.entry.package_id for one in author.journaled()]
    assert sorted(ids) == sorted(package_id for package_id, _, _, _ in done)
    assert stale(author) == []


class NoLock(AppendLock):
    """A broken publisher's: it exports and appends whenever it likes."""

    @contextmanager
    def hold(self) -> Iterator[psycopg.Connection]:
        yield self._connected()


@pytest.mark.proof
def test_r6_the_checker_catches_a_publisher_without_the_lock(author: Author) -> None:
    held_back = AwayJournal(author.journal)
    held_back.may_append.clear()
    slow = author.replica(journal=held_back, lock=NoLock(author.lock_connection))
    quick = author.replica(lock=NoLock(author.lock_connection))
    with ThreadPoolExecutor(1) as pool:
        slowly = pool.submit(publish, slow, request(PATHS[0]))
        assert held_back.requested.wait(120)
        author.write(page(PATHS[0], 1))
        publish(quick, request(PATHS[0]))
        held_back.may_append.set()
        slowly.result()
    assert stale(author) != []


def test_r6_the_lock_orders_what_the_checker_saw(author: Author) -> None:
    held_back = AwayJournal(author.journal)
    held_back.may_append.clear()
    slow, quick = author.replica(journal=held_back), author.replica()
    with ThreadPoolExecutor(2) as pool:
        slowly = pool.submit(publish, slow, request(PATHS[0]))
        assert held_back.requested.wait(120)
        author.write(page(PATHS[0], 1))
        quickly = pool.submit(publish, quick, request(PATHS[0]))
        eventually(lambda: waiting_for_locks(author.database_url, "tests-lock"))
        held_back.may_append.set()
        slowly.result()
        quickly.result()
    assert [version for _, _, _, version in carried(author)] == [0, 1]


def test_r6_one_package_never_mixes_two_states(author: Author) -> None:
    """A writer changes all paths in one transaction, again and again, while they are exported."""
    stop = threading.Event()

    def rewrite() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            author.write(*(page(path, version) for path in PATHS))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(rewrite)
        replica = author.replica()
        for _ in range(10):
            publish(replica, request(*PATHS), request(deep=["/contended"]))
        stop.set()
        writing.result()
    versions: dict[int, set[int]] = {}
    for offset, _, _, version in carried(author):
        versions.setdefault(offset, set()).add(version)
    assert len(versions) == 20
    assert all(len(mixed) == 1 for mixed in versions.values())
    groups = [versions[offset] for offset in sorted(versions)]
    assert groups[::2] == groups[1::2]
