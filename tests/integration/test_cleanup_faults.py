"""The cleanup when something fails: journal, store, clocks, its own process."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.blobs.api import BlobStoreUnavailable
from packhorse.messaging.api import JournalUnavailable, TopicSpec
from packhorse.runtime import audit
from packhorse.runtime.audit import AuditOutcome
from packhorse_services.cleanup import ledger, sweep
from packhorse_services.cleanup.cleanup_lock import CleanupLock, CleanupLockLost
from packhorse_services.cleanup.report import CleanupRun, RunState
from packhorse_services.cleanup.runner import run_by_hand
from packhorse_services.cleanup.sweep import ForeignLog, Sweep
from tests.harness.cleanup import DAY_S, GRACE, TOPIC, Altered, Stage, journal_away, staged
from tests.harness.crash import Crash
from tests.harness.postgres import end_sessions


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


def _last(stage: Stage) -> CleanupRun:
    return ledger.recent(stage.database, 1)[0]


@pytest.mark.parametrize("method", ["bounds", "identity", "reader"])
def test_an_error_of_the_journal_removes_nothing(stage: Stage, method: str) -> None:
    old = stage.publish()
    stage.publish()
    stage.forget_log(before=1)

    with pytest.raises(JournalUnavailable):
        stage.run(journal=Altered(stage.journal, {method: journal_away}))
    assert stage.has(old)
    assert _last(stage).state is RunState.FAILED
    assert _last(stage).error == "the broker is away"
    stage.run()
    assert not stage.has(old)


def test_r21_a_record_that_cannot_be_read_may_name_what_would_go(stage: Stage) -> None:
    old = stage.publish()
    stage.publish()
    stage.forget_log(before=1)
    unread = stage.journal.read_at(TOPIC, 1)
    assert unread is not None
    unread.damage = "its page is torn"  # of the very record that the log in memory gives out
    with pytest.raises(JournalUnavailable, match="its page is torn"):
        stage.run()
    assert stage.has(old)


def test_who_was_replaced_stops_reading_the_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_BEAT_S", -1)
    stage.publish()
    stage.publish()
    stage.forget_log(before=1)

    def replaced(*arguments: Any, **named: Any) -> Any:
        stage.replace_cleaner()
        reader = stage.journal.reader(*arguments, **named)
        monkeypatch.setattr(reader, "poll", lambda *_, **__: pytest.fail("it reads on"))
        return reader

    with pytest.raises(CleanupLockLost):
        stage.run(journal=Altered(stage.journal, {"reader": replaced}))


def test_runs_are_in_the_audit_log_and_dry_ones_are_not(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    monkeypatch.setattr(audit, "_limit", audit.RefusalLimit())
    stage.run(dry_run=True)
    with pytest.raises(JournalUnavailable):
        stage.run(journal=Altered(stage.journal, {"bounds": journal_away}))
    run = stage.run()
    failed, done = [vars(one) for one in caplog.records if one.name == audit.LOGGER]
    assert (failed["outcome"], failed["reason"]) == (AuditOutcome.FAILED, "JournalUnavailable")
    assert (done["outcome"], done["caller"]) == (AuditOutcome.DONE, "hand")
    assert (done["operation"], done["object"]) == ("cleanupRun", f"/cleanup/runs/{run.id}")


def test_r21_a_cleanup_whose_topic_is_not_the_publishers_removes_nothing(stage: Stage) -> None:
    package = stage.publish()
    stage.database.execute(
        "INSERT INTO bookkeeping.slot (journal_id) VALUES (%s)", (stage.journal.identity(TOPIC),)
    )
    stage.run()
    stage.journal.create_topics([TopicSpec("another")])
    elsewhere = Sweep(stage.journal, "another", stage.blobs, GRACE)
    for dry_run in (True, False):
        with pytest.raises(ForeignLog, match="the same PACKHORSE_JOURNAL_URL and names of topics"):
            run_by_hand(stage.url, elsewhere, dry_run=dry_run)
        assert _last(stage).state is RunState.FAILED
    stage.run()
    assert stage.has(package)


@pytest.mark.parametrize("clock", ["store", "database"])
def test_a_clock_that_jumps_alone_removes_nothing(stage: Stage, clock: str) -> None:
    orphan = stage.put()
    stage.run()
    stage.let_pass(365 * DAY_S, store=clock == "store", database=clock == "database")
    stage.run()
    assert stage.has(orphan)


def test_the_stores_clock_counts_not_this_machines(stage: Stage) -> None:
    orphan = stage.put()
    stage.run()
    stage.let_pass()
    behind = Altered(stage.blobs, {"now_ms": lambda: stage.blobs.now_ms() - 2 * DAY_S * 1000})
    stage.run(blobs=behind)
    assert stage.has(orphan)


def test_a_report_that_cannot_be_written_removes_nothing(stage: Stage) -> None:
    old = stage.publish()
    stage.forget_log()
    stage.database.execute(
        """
        CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER too_full BEFORE INSERT ON bookkeeping.cleanup_removal
            EXECUTE FUNCTION disk_full();
        """
    )
    with pytest.raises(psycopg.errors.DiskFull):
        stage.run()
    assert stage.has(old)
    assert (_last(stage).state, _last(stage).error) == (RunState.FAILED, "DiskFull")
    stage.database.execute("DROP TRIGGER too_full ON bookkeeping.cleanup_removal")
    stage.run()
    assert not stage.has(old)


def test_a_store_that_fails_half_way_is_finished_by_the_next_run(stage: Stage) -> None:
    packages = [stage.publish() for _ in range(5)]
    stage.forget_log()
    left = iter(range(2))

    def delete(key: str) -> None:
        if next(left, None) is None:
            raise BlobStoreUnavailable("the store is away")
        stage.blobs.delete(key)

    with pytest.raises(BlobStoreUnavailable):
        stage.run(blobs=Altered(stage.blobs, {"delete": delete}))
    assert sum(map(stage.has, packages)) == 3
    stage.run()
    assert not any(map(stage.has, packages))
    assert stage.rows() == {}


def test_a_cleaner_that_was_replaced_stops_removing(stage: Stage) -> None:
    packages = [stage.publish() for _ in range(3)]
    stage.forget_log()
    deleted: list[str] = []

    def delete(key: str) -> None:
        deleted.append(key)
        stage.replace_cleaner()
        stage.blobs.delete(key)

    with pytest.raises(CleanupLockLost):
        stage.run(batch=1, blobs=Altered(stage.blobs, {"delete": delete}))
    assert len(deleted) == 1
    stage.run()
    assert not any(map(stage.has, packages))
    assert [run.state for run in ledger.recent(stage.database, 2)] == [
        RunState.SUCCEEDED,
        RunState.ABANDONED,
    ]


def test_a_cleaner_whose_session_was_ended_stops_removing(stage: Stage) -> None:
    packages = [stage.publish() for _ in range(3)]
    stage.forget_log()

    def delete(key: str) -> None:
        end_sessions(stage.database, "cleanup")
        stage.blobs.delete(key)

    with pytest.raises(psycopg.OperationalError):
        stage.run(batch=1, blobs=Altered(stage.blobs, {"delete": delete}))
    assert sum(map(stage.has, packages)) == 2
    stage.run()
    assert not any(map(stage.has, packages))


@contextmanager
def _crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[Callable[[], None]]:
    """Crash at the `at`-th step: before a transaction, before its commit, or at a delete."""
    steps = iter(range(1, at))
    transaction = CleanupLock.transaction

    def step() -> None:
        if next(steps, None) is None:
            raise Crash

    @contextmanager
    def watched(turn: CleanupLock) -> Iterator[Any]:
        step()
        with transaction(turn) as connection:
            yield connection
            step()

    with monkeypatch.context() as patch:
        patch.setattr(CleanupLock, "transaction", watched)
        yield step


def test_a_crash_at_any_step_loses_nothing_and_is_finished_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, 200):
        kept, going, orphan = stage.publish(), [stage.publish() for _ in range(3)], stage.put()
        stage.append(kept)
        stage.forget_log(before=stage.journal.bounds(TOPIC).next - 1)
        stage.run()
        stage.let_pass()
        if _crashed(stage, monkeypatch, at):
            assert stage.has(kept)
        else:
            break
        stage.run()
        assert stage.has(kept)
        assert not any(map(stage.has, [*going, orphan]))
        assert not {*going, orphan} & stage.rows().keys()
        stage.forget_log()
    assert at > 15


def _crashed(stage: Stage, monkeypatch: pytest.MonkeyPatch, at: int) -> bool:
    with _crashing(monkeypatch, at) as step:

        def delete(key: str) -> None:
            step()
            stage.blobs.delete(key)
            step()

        try:
            stage.run(batch=2, blobs=Altered(stage.blobs, {"delete": delete}))
        except Crash:
            return True
    return False
