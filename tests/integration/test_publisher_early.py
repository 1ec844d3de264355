"""Large requests are exported before the append lock, and stay right there (R5, R6; ADR 0012)."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.clock import SystemClock
from packhorse.db.connect import connect
from packhorse.packages.body import unpack
from packhorse.packages.build import PathMissing
from packhorse.wire.messages import Action
from packhorse_services.publisher.outbox.append_lock import (
    AppendLock,
    AppendLockBusy,
    lock_connection,
)
from packhorse_services.publisher.outbox.producers import EarlierRefused
from packhorse_services.publisher.outbox.request import DistributionRequest, Draft, Pending
from packhorse_services.publisher.publish.early_export import EXPORTS
from packhorse_services.publisher.publish.overlap import Footprint
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.publishing import JournalPatience, OutboxFull
from tests.harness.dying_publisher import crash_once
from tests.harness.memory_author import memory_author
from tests.harness.prepared import between_look_and_lock
from tests.harness.producers import Source
from tests.harness.publishing import (
    AGENT,
    Author,
    AwayJournal,
    page,
    publish,
    request,
)

BULK = [f"/bulk/{number}" for number in range(5)]


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    nodes = page("/bulk"), *map(page, BULK), page("/p")
    with memory_author(database_url, tmp_path, *nodes) as author:
        yield author


def bulk(**options: Any) -> DistributionRequest:
    return request(deep=["/bulk"], **options)


def contents(author: Author) -> list[dict[str, str]]:
    """Return path -> properties of each package in the journal."""
    return [
        {node.path: node.properties for node in unpack(placed.message, author.blobs)}
        for placed in author.journaled()
    ]


class InterruptedPacker(Packer):
    """Lets the test do something between an export and the lock."""

    def __init__(self, author: Author, *happenings: Callable[[], None]) -> None:
        super().__init__(author.blobs, AGENT, "instance", SystemClock())
        self._happenings = list(happenings)
        self.drafts = 0

    def draft(self, *arguments: Any) -> Draft:
        drafted = super().draft(*arguments)
        self.drafts += 1
        if self._happenings:
            self._happenings.pop(0)()
        return drafted


def edit_and_publish(author: Author, path: str, version: int) -> Callable[[], None]:
    def happen() -> None:
        author.write(page(path, version))
        publish(author.replica(), request(path))

    return happen


def versions_of(author: Author, path: str) -> list[str]:
    return [nodes[path] for nodes in contents(author) if path in nodes]


def test_r6_a_draft_that_a_later_package_overlaps_is_made_again(author: Author) -> None:
    packer = InterruptedPacker(author, edit_and_publish(author, BULK[2], 1))
    [pending] = publish(author.early(packer=packer), bulk())
    assert pending.future.result().offset == 1
    assert packer.drafts == 2
    assert versions_of(author, BULK[2]) == ['{"version": 1}', '{"version": 1}']


@pytest.mark.proof
def test_r6_the_checker_catches_a_publisher_that_does_not_look_for_overlaps(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Footprint, "overlaps", lambda *_: False)
    packer = InterruptedPacker(author, edit_and_publish(author, BULK[2], 1))
    publish(author.early(packer=packer), bulk())
    assert versions_of(author, BULK[2]) == ['{"version": 1}', '{"version": 0}']


def test_r6_a_draft_that_nothing_overlaps_goes_out_as_it_is(author: Author) -> None:
    packer = InterruptedPacker(author, edit_and_publish(author, "/p", 1))
    [pending] = publish(author.early(packer=packer), bulk())
    assert packer.drafts == 1
    assert pending.future.result().offset == 1


def test_r6_an_overlap_between_the_look_and_the_lock_is_seen_under_the_lock(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer = InterruptedPacker(author)
    overlap = edit_and_publish(author, BULK[0], 1)
    publish(between_look_and_lock(author, monkeypatch, overlap, packer), bulk())
    assert packer.drafts == 2
    assert versions_of(author, BULK[0]) == ['{"version": 1}', '{"version": 1}']


def test_r6_what_is_always_overlapped_is_exported_under_the_lock_in_the_end(
    author: Author,
) -> None:
    edits = [edit_and_publish(author, BULK[0], version) for version in range(1, 9)]
    packer = InterruptedPacker(author, *edits)
    [pending] = publish(author.early(packer=packer), bulk())
    assert packer.drafts == EXPORTS
    assert pending.future.result().offset == EXPORTS
    versions = versions_of(author, BULK[0])
    assert versions == sorted(versions)
    assert versions[-1] == f'{{"version": {EXPORTS}}}'


def test_r6_a_deletion_in_between_makes_a_draft_stale(author: Author) -> None:
    def delete() -> None:
        with connect(author.database_url, "tests") as connection:
            connection.execute("DELETE FROM content.node WHERE path = %s", (BULK[0],))
        publish(author.replica(), request(BULK[0], action=Action.DELETE))

    publish(author.early(packer=InterruptedPacker(author, delete)), bulk())
    assert BULK[0] not in contents(author)[-1]


def test_r6_rows_that_are_gone_and_new_epochs_make_every_draft_stale(author: Author) -> None:
    def forget() -> None:
        publish(author.replica(), request("/p"))
        with connect(author.database_url, "tests") as connection:
            connection.execute("DELETE FROM bookkeeping.outbox")

    def new_epoch() -> None:
        with connect(author.database_url, "tests") as connection:
            connection.execute("UPDATE bookkeeping.slot SET epoch = epoch + 1")

    packer = InterruptedPacker(author, forget, new_epoch)
    publish(author.early(packer=packer), bulk())
    assert packer.drafts == 3


def test_r5_a_known_key_is_answered_although_its_paths_are_gone(author: Author) -> None:
    early = author.early()
    [first] = publish(early, bulk(key="k"))
    with connect(author.database_url, "tests") as connection:
        connection.execute("DELETE FROM content.node WHERE path >= '/bulk' AND path < '/bulk0'")
    [again, other] = publish(early, bulk(key="k"), bulk(key="other"))
    assert again.future.result().repeated
    assert again.future.result().package_id == first.future.result().package_id
    assert isinstance(other.future.exception(), PathMissing)
    assert len(author.journaled()) == 1


def test_r5_a_producers_requests_keep_their_order(author: Author) -> None:
    source = Source(author)
    source.register()
    requests = [
        source.request(1, "/p"),
        replace(source.request(2, "/p"), deep_paths=("/bulk",)),
        source.request(3, "/gone"),
        source.request(4, "/p"),
    ]
    packer = InterruptedPacker(author, edit_and_publish(author, "/p", 1))
    [one, two, missing, behind] = publish(author.early(packer=packer), *requests)
    assert one.future.result().offset == 1
    assert two.future.result().offset == 2
    assert isinstance(missing.future.exception(), PathMissing)
    assert isinstance(behind.future.exception(), EarlierRefused)
    assert source.journaled() == [1, 2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # dead cursors
def test_r5_a_crash_at_any_step_leaves_each_package_in_the_journal_once(author: Author) -> None:
    survivor = author.replica()
    steps = 0
    while crash_once(
        author, steps, bulk(key=f"a{steps}"), request("/p", key=f"b{steps}"), early=True
    ):
        survivor.reconcile()
        accepted = {row[0] for row in author.rows("SELECT package_id FROM bookkeeping.outbox")}
        found = Counter(placed.message.entry.package_id for placed in author.journaled())
        assert found == Counter(accepted), steps
        publish(survivor, bulk(key=f"a{steps}"), request("/p", key=f"b{steps}"))
        steps += 1
    assert steps > 50
    numbers = [placed.number for placed in author.journaled()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 2 * steps + 2


def test_r5_a_busy_lock_costs_no_second_export(author: Author) -> None:
    lock = AppendLock(lambda: lock_connection(author.database_url, "tests-lock", lock_ms=50))
    packer = InterruptedPacker(author)
    early = author.early(packer=packer, publishing=author.replica(lock=lock))
    pending = Pending(bulk())
    other = AppendLock(author.lock_connection)
    with other.hold():
        for _ in range(3):
            with pytest.raises(AppendLockBusy):
                early.publish([pending])
    other.close()
    early.publish([pending])
    assert pending.future.result().offset == 0
    assert packer.drafts == 1


def test_an_export_is_not_begun_while_too_much_waits_for_the_journal(author: Author) -> None:
    away = AwayJournal(author.journal)
    away.away = True
    impatient = JournalPatience(reconcile_s=0.0, retry_s=0.0, outbox_packages=1)
    publishing = author.replica(journal=away, patience=impatient)
    packer = InterruptedPacker(author)
    early = author.early(packer=packer, publishing=publishing)
    [accepted] = publish(early, bulk())
    assert accepted.future.result().offset is None
    [refused] = publish(early, bulk())
    assert isinstance(refused.future.exception(), OutboxFull)
    assert packer.drafts == 1
    away.away = False
    [late] = publish(early, bulk())
    assert late.future.result().offset == 1


def test_a_statement_that_breaks_early_costs_its_request_alone(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Packer.draft

    def divide(
        packer: Packer, connection: psycopg.Connection, requested: DistributionRequest, *rest: Any
    ) -> Draft:
        if requested.paths == ("/p",):
            connection.execute("SELECT 1 / 0")
        return draft(packer, connection, requested, *rest)

    monkeypatch.setattr(Packer, "draft", divide)
    first, broken, last = publish(author.early(), bulk(), request("/p"), bulk())
    assert isinstance(broken.future.exception(), psycopg.errors.DivisionByZero)
    assert [one.future.result().offset for one in (first, last)] == [0, 1]
