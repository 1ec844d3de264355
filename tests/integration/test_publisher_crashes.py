"""R5, R26, R27: whatever crashes or gets lost, each accepted package is in the journal once."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import psycopg
import pytest

from packhorse.messaging.api import Appended, Journal, Outgoing
from packhorse_services.publisher.outbox import journal_appender
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.journal_search import Findings
from packhorse_services.publisher.outbox.request import Accepted, Pending
from packhorse_services.publisher.publish.publishing import JournalPatience, OutboxFull, Publishing
from tests.harness.dying_publisher import crash_once
from tests.harness.memory_author import memory_author
from tests.harness.postgres import Databases
from tests.harness.publishing import (
    ONE_TRY,
    Author,
    AwayJournal,
    Crash,
    FragileJournal,
    Fuse,
    LossyJournal,
    fragile_lock,
    page,
    publish,
    request,
)


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    nodes = (page(f"/p{number}") for number in range(3))
    with memory_author(database_url, tmp_path, *nodes) as author:
        yield author


def test_r5_a_crash_at_any_step_leaves_each_package_in_the_journal_once(author: Author) -> None:
    survivor = author.replica()
    steps = 0
    while crash_once(
        author, steps, request("/p0", key=f"a{steps}"), request("/p1", key=f"b{steps}")
    ):
        survivor.reconcile()
        accepted = {row[0] for row in author.rows("SELECT package_id FROM bookkeeping.outbox")}
        found = Counter(placed.message.entry.package_id for placed in author.journaled())
        assert found == Counter(accepted), steps
        again = publish(survivor, request("/p0", key=f"a{steps}"), request("/p1", key=f"b{steps}"))
        offsets = {
            pending.future.result().package_id: pending.future.result().offset for pending in again
        }
        placed = {placed.message.entry.package_id: placed.offset for placed in author.journaled()}
        assert all(placed[package_id] == offset for package_id, offset in offsets.items())
        steps += 1
    assert steps > 30
    numbers = [placed.number for placed in author.journaled()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 2 * steps + 2


def test_r5_a_crash_while_settling_repeats_nothing(author: Author) -> None:
    steps = 0
    blown = True
    while blown:
        fuse = Fuse(steps)
        lost = LossyJournal(author.journal, random.Random(steps), faults=1.0)
        losing = author.replica(journal=lost, patience=ONE_TRY)
        publish(losing, request("/p0"), request("/p1"), request("/p2"))
        settling = author.replica(
            journal=FragileJournal(author.journal, fuse),
            lock=fragile_lock(author, fuse),
        )
        try:
            settling.reconcile()
        except Crash:
            settling.close()
        blown = fuse.blown
        steps += 1
        author.replica().reconcile()
        author.close()
    assert steps > 30
    placed = author.journaled()
    assert Counter(p.message.entry.package_id for p in placed).most_common(1)[0][1] == 1
    assert len(placed) == 3 * steps
    assert [p.number for p in placed] == sorted({p.number for p in placed})


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.depth) for one in (1, 2, 3))]
)
def test_r26_lost_acknowledgements_neither_lose_nor_repeat(author: Author, seed: int) -> None:
    lossy = LossyJournal(author.journal, random.Random(seed))
    replica = author.replica(journal=lossy)
    answers = []
    for number in range(60):
        group = [request(f"/p{(number + extra) % 3}") for extra in range(number % 4 + 1)]
        answers += [pending.future.result() for pending in publish(replica, *group)]
    author.replica().reconcile()
    placed = author.journaled()
    offsets = {p.message.entry.package_id: p.offset for p in placed}
    assert lossy.lost_records
    assert lossy.lost_acknowledgements
    assert Counter(offsets.keys()) == Counter(answer.package_id for answer in answers)
    assert len(placed) == len(answers)
    assert all(offsets[a.package_id] == a.offset for a in answers if a.offset is not None)
    assert [p.number for p in placed] == sorted({p.number for p in placed})


@pytest.mark.proof
def test_r26_the_checker_catches_a_publisher_that_does_not_look(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_away(journal: Journal, topic: str, *_: object, **__: object) -> Findings:
        return Findings(journal.bounds(topic).next)

    monkeypatch.setattr(journal_appender, "search", look_away)
    lossy = LossyJournal(author.journal, random.Random(1))
    publish(author.replica(journal=lossy), *(request(f"/p{number % 3}") for number in range(20)))
    ids = Counter(placed.message.entry.package_id for placed in author.journaled())
    assert lossy.lost_acknowledgements
    assert ids.most_common(1)[0][1] > 1


def test_r26_a_lost_commit_answer_makes_no_second_package(author: Author) -> None:
    """The connection is cut at every step, and the same requests are published again."""
    for steps in range(0, 60, 2):
        fuse = Fuse(steps)
        cut = author.replica(lock=fragile_lock(author, fuse))
        group = publish_through(author, cut, f"/p{steps % 3}")
        assert group.future.result().offset is not None
    placed = author.journaled()
    assert len(placed) == 30
    assert [p.number for p in placed] == sorted({p.number for p in placed})


def publish_through(author: Author, cut: Publishing, path: str) -> Pending:
    pending = Pending(request(path))
    try:
        cut.publish([pending])
    except Crash:
        cut.close()
        author.replica().publish([pending])
    return pending


def test_r5_what_is_committed_is_never_refused(author: Author) -> None:
    """Its session is lost behind the commit; then the journal is away, and the outbox full."""
    sessions: list[psycopg.Connection] = []

    class Cutting(AwayJournal):
        def append(self, topic: str, record: Outgoing) -> Future[Appended]:
            if self.away:
                sessions[-1].close()
            return super().append(topic, record)

    def opened() -> psycopg.Connection:
        sessions.append(author.lock_connection())
        return sessions[-1]

    journal = Cutting(author.journal)
    full = JournalPatience(reconcile_s=0, outbox_packages=1)
    replica = author.replica(journal=journal, lock=AppendLock(opened), patience=full)
    publish(replica, request("/p2"))
    journal.away = True
    pending = Pending(request("/p0"))
    with pytest.raises(psycopg.OperationalError):
        replica.publish([pending])
    [refused] = publish(replica, request("/p1"))
    assert isinstance(refused.future.exception(), OutboxFull)
    replica.publish([pending])
    assert pending.future.result() == Accepted(pending.package_id, None)
    author.replica().reconcile()
    assert [one.message.entry.paths for one in author.journaled()] == [("/p2",), ("/p0",)]


def test_r27_a_restored_author_begins_a_new_epoch(
    databases: Databases, author: Author, tmp_path: Path
) -> None:
    publish(author.replica(), request("/p0"))
    author.close()
    backup = databases.copy(author.database_url)
    publish(author.replica(), request("/p0"), request("/p1"))
    restored = Author(backup, author.journal, author.blobs)
    publish(restored.replica(), request("/p2"))
    publish(restored.replica(), request("/p2"))
    restored.close()
    placed = author.journaled()
    assert [p.message.entry.epoch for p in placed] == [1, 1, 1, 2, 2]
    assert [p.number for p in placed] == sorted({p.number for p in placed})
    assert len({p.message.entry.producer for p in placed}) == 1


def test_r27_a_backup_from_before_the_first_package_takes_another_name(
    databases: Databases, author: Author
) -> None:
    author.replica().reconcile()
    author.close()
    backup = databases.copy(author.database_url)
    publish(author.replica(), request("/p0"), request("/p1"))
    restored = Author(backup, author.journal, author.blobs)
    publish(restored.replica(), request("/p2"))
    restored.close()
    entries = [placed.message.entry for placed in author.journaled()]
    assert [entry.producer == entries[0].producer for entry in entries] == [True, True, False]
