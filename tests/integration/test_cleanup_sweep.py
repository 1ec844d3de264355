"""R21: what the log has forgotten goes, what it names stays, whatever fails or crashes."""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packhorse.blobs.api import binary_key
from packhorse.messaging.api import Bounds
from packhorse.snapshots.snapshot import part_key
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.report import (
    CleanupRun,
    ReasonTotal,
    RemovalReason,
    RunState,
    as_lines,
)
from packhorse_services.cleanup.sweep import JournalChanged
from tests.harness.cleanup import DAY_S, Altered, Stage, staged


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


def _removals(stage: Stage, run: CleanupRun) -> list[str]:
    found = ledger.removals(stage.database, run.id, "", 1000)
    return [removal.key.rpartition("/")[2] for removal in found]


def test_r21_a_package_that_the_log_forgot_goes_and_one_in_the_log_stays(stage: Stage) -> None:
    old, young = stage.publish(), stage.publish()
    stage.forget_log(before=1)
    run = stage.run()
    assert not stage.has(old)
    assert stage.has(young)
    assert stage.rows() == {young: 1}
    assert run.state is RunState.SUCCEEDED
    assert run.totals == {"forgotten": ReasonTotal(1, len(old))}
    assert (run.oldest_offset, run.next_offset) == (1, 2)
    assert run.kept == {"pending": 0, "in_log": 1, "young_orphans": 0, "named_by_the_log": 0}


def test_a_second_run_finds_nothing(stage: Stage) -> None:
    stage.publish()
    stage.forget_log()
    stage.run()
    second = stage.run()
    assert second.totals == {}
    _, nothing, kept = as_lines(second, [])
    assert nothing == "removed nothing"
    assert kept.startswith("kept: ")
    assert "0 young orphans" in kept


def test_the_report_says_what_was_removed_and_why(stage: Stage) -> None:
    forgotten, orphan = stage.publish(), stage.put()
    stage.run()
    stage.forget_log()
    stage.let_pass()
    run = stage.run()
    [first, second] = ledger.removals(stage.database, run.id, "", None)
    by_id = {removal.key.rpartition("/")[2]: removal for removal in (first, second)}
    assert by_id[forgotten].reason is RemovalReason.FORGOTTEN
    assert by_id[forgotten].offset == 0
    assert by_id[orphan].reason is RemovalReason.ORPHAN
    assert by_id[orphan].offset is None
    assert by_id[orphan].bytes == len(orphan)
    assert all(removal.removed_at for removal in by_id.values())
    page = ledger.removals(stage.database, run.id, "", 1)
    behind = page[0].key
    assert f"  and 1 more: GET /cleanup/runs/{run.id}?after={behind}" in as_lines(run, page)
    assert "more" not in "".join(as_lines(run, [first, second]))


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


def test_a_package_on_its_way_is_neither_stamped_nor_removed(stage: Stage) -> None:
    pending = stage.put()
    stage.commit(pending)
    stage.publish()
    stage.run()
    stage.forget_log()
    stage.let_pass()
    stage.run()
    assert stage.has(pending)
    assert stage.rows() == {pending: None}


def test_an_append_between_the_two_looks_is_not_stamped_too_low(stage: Stage) -> None:
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


def test_r24_a_topic_that_is_made_anew_during_the_run_removes_nothing(stage: Stage) -> None:
    old = stage.publish()
    stage.forget_log()
    asked = itertools.count(1)

    def identity(topic: str) -> str:
        return stage.journal.identity(topic) if next(asked) == 1 else "another one"

    with pytest.raises(JournalChanged):
        stage.run(journal=Altered(stage.journal, {"identity": identity}))
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


def test_r24_a_dry_run_takes_no_journal_for_the_one_of_the_offsets(stage: Stage) -> None:
    package = stage.publish()
    stage.run()
    moved = Altered(stage.journal, {"identity": lambda topic: "moved"})
    for _ in range(2):
        stage.run(journal=moved, dry_run=True)
    assert stage.rows() == {package: 0}
    stage.publish()
    stage.run(journal=moved)
    assert stage.rows()[package] == 1, "its offset is known no longer"


def test_a_package_appended_twice_stays_as_long_as_either_copy(stage: Stage) -> None:
    """A publisher that was paused may append again what is in the log (R27)."""
    twice = stage.publish()
    stage.publish()
    second = stage.append(twice)
    stage.forget_log(before=1)
    assert stage.run(dry_run=True).kept["named_by_the_log"] == 1
    assert stage.rows()[twice] == 0
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


def test_an_orphan_goes_after_the_grace_and_not_before(stage: Stage) -> None:
    orphan = stage.put()
    stage.run()
    stage.let_pass(DAY_S - 2 * 3600)
    assert stage.run().kept["young_orphans"] == 1
    assert stage.has(orphan)
    stage.let_pass(2 * 3600)
    stage.run()
    assert not stage.has(orphan)


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


def test_more_than_one_run_may_do_is_done_by_the_next(stage: Stage) -> None:
    packages = [stage.publish() for _ in range(5)]
    stage.forget_log()
    stage.run(most=2, dry_run=True)
    for left, jobs in ((3, 1), (1, 2), (0, 2)):
        stage.run(most=2)
        assert sum(map(stage.has, packages)) == left
        rows = stage.database.execute("SELECT topic FROM jobs.job").fetchall()
        assert rows == [("packhorse/cleanup/run",)] * jobs, "the service does the rest"


def test_orphans_that_the_log_names_ask_for_no_other_run(stage: Stage) -> None:
    packages = [stage.publish() for _ in range(3)]
    stage.lose_rows(*packages)
    stage.run()
    stage.let_pass()
    assert stage.run(most=2).kept["named_by_the_log"] == 2
    assert all(map(stage.has, packages))
    assert stage.database.execute("SELECT FROM jobs.job").fetchall() == []
    stage.forget_log()
    assert stage.run(most=2).totals["orphan"].count == 2
    assert len(stage.database.execute("SELECT FROM jobs.job").fetchall()) == 1


def test_binaries_snapshots_and_strangers_files_are_left_alone(
    stage: Stage, tmp_path: Path
) -> None:
    keys = [binary_key(hashlib.sha256(b"x").hexdigest()), part_key("0" * 16, 5)]
    for key in keys:
        stage.blobs.put(key, [b"x"])
    stranger = tmp_path / "blobs" / "packages" / "aa" / "a stranger's file"
    stranger.write_text("mine")
    stage.run()
    stage.let_pass()
    stage.run()
    assert stranger.exists()
    assert all(stage.blobs.head(key) for key in keys)


def test_only_the_last_runs_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packhorse_services.cleanup.ledger._KEPT_RUNS", 3)
    ids = [stage.run().id for _ in range(6)]
    assert [run.id for run in ledger.recent(stage.database, 10)] == ids[:-5:-1]
