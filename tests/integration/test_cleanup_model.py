"""By any interleaving: no blob that somebody needs is gone, and every other one goes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from psycopg import sql

from packhorse_services.cleanup.cleanup_lock import CleanupLock
from packhorse_services.cleanup.orphans import Orphans
from packhorse_services.cleanup.report import Candidate, RemovalReason
from tests.harness.cleanup import TOPIC, AgingMemory, Altered, Stage
from tests.harness.crash import Crash
from tests.harness.depth import examples
from tests.harness.machines import play
from tests.harness.postgres import Databases

_EMPTY = """
    DELETE FROM bookkeeping.stored_package;
    DELETE FROM bookkeeping.outbox;
    DELETE FROM bookkeeping.orphan;
    DELETE FROM bookkeeping.cleanup_run;
    UPDATE bookkeeping.cleanup SET journal_id = '';
"""


def _number(package_id: str) -> int:
    return int(package_id.split("-")[1])


class Cleanup(RuleBasedStateMachine):
    """Publishers, a log that forgets, clocks, crashes and cleanups, one step at a time."""

    database_url: str

    @initialize(store_jumps=st.booleans())
    def begin(self, store_jumps: bool) -> None:
        self.store_jumps = store_jumps
        self.stage = Stage(self.database_url, AgingMemory())
        self.stage.database.execute(_EMPTY)
        self.being_written: list[str] = []
        self.on_their_way: list[str] = []
        self.unmarked: dict[str, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self.stage.close()

    # The publisher, which may stop after any of its steps.

    @rule()
    def put(self) -> None:
        self.being_written.append(self.stage.put())

    @precondition(lambda self: self.being_written)
    @rule()
    def commit(self) -> None:
        package = self.being_written.pop(0)
        self.stage.commit(package)
        self.on_their_way.append(package)

    @rule(again=st.booleans())
    def publish(self, again: bool) -> None:
        package = self.stage.publish()
        if again:
            self.stage.append(package)

    @precondition(lambda self: self.being_written)
    @rule()
    def fail_before_the_commit(self) -> None:
        self.being_written.pop()

    @precondition(lambda self: self.on_their_way)
    @rule()
    def append(self) -> None:
        package = self.on_their_way.pop(0)
        self.unmarked[package] = self.stage.append(package)

    @precondition(lambda self: self.unmarked)
    @rule(again=st.booleans(), with_stored=st.booleans())
    def mark(self, again: bool, with_stored: bool) -> None:
        package, offset = self.unmarked.popitem()
        if again:
            self.stage.append(package)
        self.stage.mark(package, offset, with_stored=with_stored)

    @precondition(lambda self: self.stage.rows())
    @rule(choose=st.randoms(use_true_random=False))
    def restore_an_older_database(self, choose: Any) -> None:
        package = choose.choice(sorted(self.stage.rows(), key=_number))
        self.stage.lose_rows(package)
        self.unmarked.pop(package, None)
        if package in self.on_their_way:
            self.on_their_way.remove(package)

    # The world.

    @rule(share=st.sampled_from([0.3, 0.7, 1.0]))
    def the_log_forgets(self, share: float) -> None:
        bounds = self.stage.journal.bounds(TOPIC)
        self.stage.forget_log(bounds.oldest + int((bounds.next - bounds.oldest) * share))

    @rule()
    def the_publisher_forgets_old_distributions(self) -> None:
        self.stage.database.execute(
            "DELETE FROM bookkeeping.outbox WHERE log_offset < %s",
            (self.stage.journal.bounds(TOPIC).oldest,),
        )

    @rule()
    def a_day_passes(self) -> None:
        self.being_written.clear()  # no export takes a day
        self.stage.let_pass()

    @rule()
    def one_clock_jumps(self) -> None:
        self.stage.let_pass(store=self.store_jumps, database=not self.store_jumps)

    # The cleanup.

    @rule(dry_run=st.booleans())
    def clean_up(self, dry_run: bool) -> None:
        self.stage.run(dry_run=dry_run)

    @rule()
    def a_day_passes_between_two_runs(self) -> None:
        self.stage.run()
        self.a_day_passes()
        self.stage.run()

    @rule(steps=st.integers(0, 25))
    def clean_up_and_crash(self, steps: int) -> None:
        left = iter(range(steps))

        def step() -> None:
            if next(left, None) is None:
                raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CleanupLock, "transaction", _interrupted(step))
            with suppress(Crash):
                self.stage.run(blobs=_deleting(self.stage, step))

    @invariant()
    def i9_no_blob_that_is_needed_is_missing(self) -> None:
        if not hasattr(self, "stage"):
            return
        needed = {*self.being_written, *self.on_their_way, *self.unmarked, *self.stage.named()}
        assert not {package for package in needed if not self.stage.has(package)}

    @rule()
    def i9_what_nobody_needs_is_gone_after_two_runs_and_the_grace(self) -> None:
        self.a_day_passes_between_two_runs()
        left = {blob.key.rpartition("/")[2] for blob in self.stage.blobs.list("packages/")}
        waiting = {package for package, offset in self.stage.rows().items() if offset is None}
        assert left <= self.stage.named() | waiting


def _interrupted(step: Callable[[], None]) -> Callable[[CleanupLock], Any]:
    transaction = CleanupLock.transaction

    @contextmanager
    def watched(turn: CleanupLock) -> Iterator[Any]:
        step()
        with transaction(turn) as connection:
            yield connection
            step()

    return watched


def _deleting(stage: Stage, step: Callable[[], None]) -> Any:
    def delete(key: str) -> None:
        step()
        stage.blobs.delete(key)

    return Altered(stage.blobs, {"delete": delete})


def _play(databases: Databases, examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    Cleanup.database_url = url = databases.new()
    with psycopg.connect(databases.server.url(), autocommit=True) as connection:
        name = sql.Identifier(url.rpartition("/")[2])
        connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name))
    options: Any = {"derandomize": True, "database": None, "report_multiple_bugs": False}
    play(Cleanup, examples, phases=phases, **options)


def test_holds_whatever_happens_in_whatever_order(databases: Databases) -> None:
    _play(databases, examples(40))


def _no_grace(orphans: Orphans, connection: Any, found: Any, now_ms: int) -> list[Candidate]:
    return [Candidate(blob.key, RemovalReason.ORPHAN, blob.length) for blob in found]


def _all_without_offset(connection: Any, limit: int) -> list[str]:
    rows = connection.execute(
        "SELECT key FROM bookkeeping.stored_package WHERE log_offset IS NULL"
    ).fetchall()
    return [key for (key,) in rows]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("packhorse_services.cleanup.orphans.Orphans._due", _no_grace),
        ("packhorse_services.cleanup.sweep.last_offsets", lambda *arguments: {}),
        ("packhorse.bookkeeping.stored_packages.unplaced", _all_without_offset),
        ("packhorse_services.cleanup.orphans.Orphans.see", lambda *arguments: ([], 0)),
    ],
    ids=["no grace", "the log is not read", "pending ones are stamped", "orphans are not seen"],
)
def test_the_model_finds_a_broken_cleanup(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, what: str, broken: Any
) -> None:
    monkeypatch.setattr(what, broken)
    with pytest.raises(AssertionError):
        _play(databases, 600, [Phase.generate])
