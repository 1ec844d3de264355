"""R21: what the log has forgotten goes, what it names stays, whatever fails or crashes."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.blobs.api import BlobStoreUnavailable, binary_key
from packhorse.messaging.api import Bounds, JournalUnavailable
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.report import Reason, Run, RunState, Total
from packhorse_services.cleanup.sweep import JournalChanged
from packhorse_services.cleanup.turn import Turn, TurnLost
from tests.harness.cleanup import DAY_S, TOPIC, Altered, Crash, Stage, staged


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


def _last(stage: Stage) -> Run:
    return ledger.recent(stage.database, 1)[0]


def _removals(stage: Stage, run: Run) -> list[str]:
    found = ledger.removals(stage.database, run.id, "", 1000)
    return [removal.candidate.package_id for removal in found]


def test_r21_a_package_that_the_log_forgot_goes_and_one_in_the_log_stays(stage: Stage) -> None:
    old, young = stage.publish(), stage.publish()
    stage.forget_log(before=1)
    run = stage.run()
    assert not stage.has(old)
    assert stage.has(young)
    assert stage.rows() == {young: 1}
    assert run.state is RunState.SUCCEEDED
    assert run.totals == {"forgotten": Total(1, len(old))}
    assert (run.oldest_offset, run.next_offset) == (1, 2)
    assert run.kept == {"pending": 0, "in_log": 1, "young_orphans": 0, "named_by_the_log": 0}


def test_c6_a_second_run_finds_nothing(stage: Stage) -> None:
    stage.publish()
    stage.forget_log()
    stage.run()
    assert stage.run().totals == {}


def test_the_report_says_what_was_removed_and_why(stage: Stage) -> None:
    forgotten, orphan = stage.publish(), stage.put()
    stage.run()
    stage.forget_log()
    stage.let_pass()
    run = stage.run()
    [first, second] = ledger.removals(stage.database, run.id, "", 10)
    by_id = {removal.candidate.package_id: removal for removal in (first, second)}
    assert by_id[forgotten].candidate.reason is Reason.FORGOTTEN
    assert by_id[forgotten].candidate.log_offset == 0
    assert by_id[orphan].candidate.reason is Reason.ORPHAN
    assert by_id[orphan].candidate.log_offset is None
    assert by_id[orphan].candidate.length == len(orphan)
    assert all(removal.removed_at for removal in by_id.values())


def test_a_dry_run_says_the_same_and_removes_nothing(stage: Stage) -> None:
    forgotten, orphan, unplaced = stage.publish(), stage.put(), stage.put()
    stage.commit(unplaced)
    stage.mark(unplaced, stage.append(unplaced), with_stored=False)
    stage.run()
    stage.forget_log(before=1)
    stage.let_pass()
    rows = stage.rows()
    preview = stage.run(dry_run=True)
    assert all(stage.has(package) for package in (forgotten, orphan, unplaced))
    assert stage.rows() == rows
    done = stage.run()
    assert preview.totals == done.totals
    assert _removals(stage, preview) == _removals(stage, done)
    assert not stage.has(forgotten)


def test_a_dry_run_neither_stamps_nor_remembers_orphans(stage: Stage) -> None:
    unplaced = stage.put()
    stage.commit(unplaced)
    stage.mark(unplaced, stage.append(unplaced), with_stored=False)
    stage.put()
    stage.run(dry_run=True)
    assert stage.rows() == {unplaced: None}
    assert stage.database.execute("SELECT count(*) FROM bookkeeping.orphan").fetchone() == (0,)


def test_r21_a_package_without_an_offset_is_stamped_with_the_newest(stage: Stage) -> None:
    unplaced = stage.put()
    stage.commit(unplaced)
    stage.mark(unplaced, stage.append(unplaced), with_stored=False)
    stage.publish()
    stage.run()
    assert stage.rows()[unplaced] == 1
    stage.forget_log(before=1)
    stage.run()
    assert stage.has(unplaced)
    stage.forget_log()
    stage.run()
    assert not stage.has(unplaced)


def test_c7_a_package_on_its_way_is_neither_stamped_nor_removed(stage: Stage) -> None:
    pending = stage.put()
    stage.commit(pending)
    stage.publish()
    stage.run()
    stage.forget_log()
    stage.let_pass()
    stage.run()
    assert stage.has(pending)
    assert stage.rows() == {pending: None}


def test_c7_an_append_between_the_two_looks_is_not_stamped_too_low(stage: Stage) -> None:
    """The packages without an offset are listed before the log's end is read."""
    stage.publish()
    late = stage.put()
    stage.commit(late)

    def appended_meanwhile(topic: str) -> Bounds:
        before = stage.journal.bounds(topic)
        stage.mark(late, stage.append(late), with_stored=False)
        return before

    stage.run(journal=Altered(stage.journal, {"bounds": appended_meanwhile}))
    assert stage.rows()[late] is None
    stage.run()
    assert stage.rows()[late] == 1


@pytest.mark.parametrize("method", ["bounds", "identity", "reader"])
def test_c3_an_error_of_the_journal_removes_nothing(stage: Stage, method: str) -> None:
    old = stage.publish()
    stage.publish()
    stage.forget_log(before=1)

    def fail(*arguments: Any, **named: Any) -> Any:
        raise JournalUnavailable("the broker is away")

    with pytest.raises(JournalUnavailable):
        stage.run(journal=Altered(stage.journal, {method: fail}))
    assert stage.has(old)
    assert _last(stage).state is RunState.FAILED
    assert _last(stage).error == "the broker is away"
    stage.run()
    assert not stage.has(old)


def test_c3_a_failed_run_is_tried_again_soon(stage: Stage) -> None:
    def fail(*arguments: Any) -> Any:
        raise JournalUnavailable("the broker is away")

    stage.database.execute("UPDATE bookkeeping.cleanup SET next_run_at = now() + interval '1 day'")
    with pytest.raises(JournalUnavailable):
        stage.run(journal=Altered(stage.journal, {"bounds": fail}))
    row = stage.database.execute("SELECT next_run_at - now() FROM bookkeeping.cleanup").fetchone()
    assert row is not None
    assert row[0] <= timedelta(minutes=15)


def test_r24_a_topic_that_is_made_anew_during_the_run_removes_nothing(stage: Stage) -> None:
    old = stage.publish()
    stage.forget_log()
    names = iter(["first", "second"])
    with pytest.raises(JournalChanged):
        stage.run(journal=Altered(stage.journal, {"identity": lambda topic: next(names)}))
    assert stage.has(old)


def test_r24_offsets_of_another_journal_decide_nothing(stage: Stage) -> None:
    """A package moved with the log to a journal whose offsets begin far above the old ones."""
    package = stage.publish()
    stage.run()
    other = Altered(
        stage.journal,
        {"identity": lambda topic: "moved", "bounds": lambda topic: Bounds(500, 501)},
    )
    other.replaced["reader"] = lambda *a, **n: pytest.fail("nothing to look for")
    stage.run(journal=other)
    assert stage.has(package)
    assert stage.rows() == {package: 500}


def test_a_package_appended_twice_stays_as_long_as_either_copy(stage: Stage) -> None:
    """A publisher that was paused may append again what is in the log (R27)."""
    twice = stage.publish()
    stage.publish()
    second = stage.append(twice)
    stage.forget_log(before=1)
    assert stage.run().kept["named_by_the_log"] == 1
    assert stage.has(twice)
    assert stage.rows()[twice] == second
    stage.forget_log()
    stage.run()
    assert not stage.has(twice)


def test_a_database_restored_from_a_backup_loses_no_blob_that_the_log_names(stage: Stage) -> None:
    package = stage.publish()
    stage.lose_rows(package)
    for _ in range(3):
        stage.run()
        stage.let_pass()
    assert stage.has(package)
    stage.forget_log()
    stage.run()
    assert not stage.has(package)


def test_b1_an_orphan_goes_after_the_grace_and_not_before(stage: Stage) -> None:
    orphan = stage.put()
    stage.run()
    stage.let_pass(DAY_S - 2 * 3600)
    assert stage.run().kept["young_orphans"] == 1
    assert stage.has(orphan)
    stage.let_pass(2 * 3600)
    stage.run()
    assert not stage.has(orphan)


@pytest.mark.parametrize("clock", ["store", "database"])
def test_c5_a_clock_that_jumps_alone_removes_nothing(stage: Stage, clock: str) -> None:
    orphan = stage.put()
    stage.run()
    stage.let_pass(365 * DAY_S, store=clock == "store", database=clock == "database")
    stage.run()
    assert stage.has(orphan)


def test_c5_the_stores_clock_counts_not_this_machines(stage: Stage) -> None:
    orphan = stage.put()
    stage.run()
    stage.let_pass()
    behind = Altered(stage.blobs, {"now_ms": lambda: stage.blobs.now_ms() - 2 * DAY_S * 1000})
    stage.run(blobs=behind)
    assert stage.has(orphan)


def test_an_orphan_that_is_committed_after_all_starts_over(stage: Stage) -> None:
    package = stage.put()
    stage.run()
    stage.let_pass()
    stage.commit(package)
    stage.run()
    assert stage.has(package)
    assert stage.database.execute("SELECT count(*) FROM bookkeeping.orphan").fetchone() == (0,)


def test_an_orphan_that_is_committed_between_mark_and_removal_stays(stage: Stage) -> None:
    package = stage.put()
    stage.run()
    stage.let_pass()
    reader = stage.journal.reader
    stage.publish()

    def commit_meanwhile(*arguments: Any, **named: Any) -> Any:
        stage.commit(package)
        return reader(*arguments, **named)

    stage.run(journal=Altered(stage.journal, {"reader": commit_meanwhile}))
    assert stage.has(package)


def test_c4_a_report_that_cannot_be_written_removes_nothing(stage: Stage) -> None:
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


def test_c2_a_cleaner_that_was_replaced_stops_removing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse_services.cleanup.sweep._BATCH", 1)
    packages = [stage.publish() for _ in range(3)]
    stage.forget_log()
    deleted: list[str] = []

    def delete(key: str) -> None:
        deleted.append(key)
        stage.database.execute("UPDATE bookkeeping.cleanup SET epoch = epoch + 1")
        stage.blobs.delete(key)

    with pytest.raises(TurnLost):
        stage.run(blobs=Altered(stage.blobs, {"delete": delete}))
    assert len(deleted) == 1
    stage.run()
    assert not any(map(stage.has, packages))
    assert [run.state for run in ledger.recent(stage.database, 2)] == [
        RunState.SUCCEEDED,
        RunState.ABANDONED,
    ]


def test_c2_a_cleaner_whose_session_was_ended_stops_removing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse_services.cleanup.sweep._BATCH", 1)
    packages = [stage.publish() for _ in range(3)]
    stage.forget_log()

    def delete(key: str) -> None:
        stage.database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'cleanup'"
        )
        stage.blobs.delete(key)

    with pytest.raises(psycopg.OperationalError):
        stage.run(blobs=Altered(stage.blobs, {"delete": delete}))
    assert sum(map(stage.has, packages)) == 2
    stage.run()
    assert not any(map(stage.has, packages))


@contextmanager
def _crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[Callable[[], None]]:
    """Crash at the `at`-th step: before a transaction, before its commit, or at a delete."""
    steps = iter(range(1, at))
    transaction = Turn.transaction

    def step() -> None:
        if next(steps, None) is None:
            raise Crash

    @contextmanager
    def watched(turn: Turn) -> Iterator[Any]:
        step()
        with transaction(turn) as connection:
            yield connection
            step()

    with monkeypatch.context() as patch:
        patch.setattr(Turn, "transaction", watched)
        yield step


def test_c1_a_crash_at_any_step_loses_nothing_and_is_finished_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse_services.cleanup.sweep._BATCH", 2)
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
            stage.run(blobs=Altered(stage.blobs, {"delete": delete}))
        except Crash:
            return True
    return False


def test_more_than_one_run_may_do_is_done_by_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse_services.cleanup.sweep.MOST", 2)
    packages = [stage.publish() for _ in range(5)]
    stage.forget_log()
    stage.database.execute("UPDATE bookkeeping.cleanup SET next_run_at = now() + interval '1 day'")
    for left in (3, 1, 0):
        stage.run()
        assert sum(map(stage.has, packages)) == left
    row = stage.database.execute("SELECT next_run_at <= now() FROM bookkeeping.cleanup").fetchone()
    assert row == (True,)


def test_content_binaries_and_strangers_files_are_left_alone(stage: Stage, tmp_path: Path) -> None:
    key = binary_key(hashlib.sha256(b"x").hexdigest())
    stage.blobs.put(key, [b"x"])
    stranger = tmp_path / "blobs" / "packages" / "aa" / "a stranger's file"
    stranger.write_text("mine")
    stage.run()
    stage.let_pass()
    stage.run()
    assert stranger.exists()
    assert stage.blobs.head(key) is not None


def test_only_the_last_runs_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packhorse_services.cleanup.ledger._KEPT_RUNS", 3)
    ids = [stage.run().id for _ in range(6)]
    assert [run.id for run in ledger.recent(stage.database, 10)] == ids[:-5:-1]
