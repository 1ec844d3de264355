"""Two workers, one database: one imports; an unheard commit is looked up (R11, R25, R26)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.importer import Importer
from packhorse_services.subscriber.journal.failures import Fenced, SessionLost
from packhorse_services.subscriber.lease import LEASE_SESSIONS
from tests.harness.clock import ManualClock
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, position_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers


def lease_session(worker: Worker) -> psycopg.Connection:
    worker.lease_connection = worker.connections.lease(LEASE_SESSIONS + worker.instance)
    return worker.lease_connection


def try_for_lease(worker: Worker) -> int | None:
    return worker.lease.attempt(worker.lease_connection or lease_session(worker))


def expire_lease(worker: Worker) -> None:
    """Let the database's clock pass the lease, as it does for a paused worker."""
    with psycopg.connect(worker.url) as connection:
        connection.execute("UPDATE bookkeeping.lease SET expires_at = clock_timestamp()")


def test_r11_the_loser_of_the_lease_waits(workers: Workers) -> None:
    first, second = workers(), workers()
    assert try_for_lease(first) == 1
    assert try_for_lease(second) is None
    assert second.lease.holder() == first.instance
    assert try_for_lease(first) == 1
    assert second.lease.wait(0) is None


def test_r11_a_dead_workers_lease_is_free_at_once(workers: Workers) -> None:
    first, second = workers(lease_s=3600), workers(lease_s=3600)
    try_for_lease(first)
    first.die()
    assert eventually(lambda: try_for_lease(second), "the lease is free", interval=0.005) == 2


def test_r11_a_paused_workers_lease_runs_out_by_the_databases_clock(workers: Workers) -> None:
    first, second = workers(), workers()
    try_for_lease(first)
    expire_lease(first)
    assert try_for_lease(second) == 2
    assert try_for_lease(first) is None
    assert first.lease.epoch() is None


def test_r28_a_clock_of_the_database_that_was_set_back_makes_no_lease_longer(
    workers: Workers,
) -> None:
    paused, other = workers(lease_s=3600), workers(lease_s=3600)
    try_for_lease(paused)
    with psycopg.connect(paused.url) as connection:
        connection.execute("UPDATE bookkeeping.lease SET expires_at = expires_at + interval '1 d'")
    assert try_for_lease(other) is None
    left = "SELECT expires_at - clock_timestamp() FROM bookkeeping.lease"
    [(left_of_it,)] = rows_of(paused.url, left)
    assert left_of_it < timedelta(seconds=3600)
    assert try_for_lease(paused) == 1


def test_r28_the_lease_does_not_follow_a_workers_clock(workers: Workers) -> None:
    fast = ManualClock()
    first, second = workers(), workers(clock=fast)
    try_for_lease(first)
    fast.advance(24 * 3600)
    assert try_for_lease(second) is None


@pytest.mark.parametrize("wall_ms", [0, 4_000_000_000_000])
def test_r28_a_wall_clock_that_jumps_ends_no_lease_and_prolongs_none(
    workers: Workers, wall_ms: int
) -> None:
    clock = ManualClock()
    worker = workers(clock=clock, lease_s=10)
    try_for_lease(worker)
    clock.jump(wall_ms)
    assert worker.lease.epoch() == 1
    clock.advance(10)
    assert worker.lease.epoch() is None


def test_r25_a_worker_that_was_replaced_between_transactions_cannot_commit(
    feed: Feed, workers: Workers
) -> None:
    old, new = workers(), workers()
    feed.add(page("/a", 1))
    old.run()
    feed.add(page("/a", 2))
    expire_lease(old)
    new.begin()
    with pytest.raises((Fenced, SessionLost, psycopg.OperationalError)):
        old.run()
    assert content_of(old.url)["/a"][1]["version"] == 1
    new.run()
    assert_is_the_fold(new.url, feed)


@pytest.mark.parametrize("alone", [False, True])
def test_r25_the_epoch_fences_even_where_the_old_session_lives_on(
    feed: Feed, workers: Workers, alone: bool
) -> None:
    old, new = workers(), workers()
    old.begin()
    if not alone:  # only the first one is tried by itself
        feed.add(page("/a", 1))
        old.run()
    feed.add(page("/a", 2))
    end_nobody(new)
    expire_lease(old)
    new.begin()
    with pytest.raises(Fenced):
        old.run()
    new.run()
    assert_is_the_fold(new.url, feed)


def end_nobody(worker: Worker) -> None:
    """Make as if this login may not end other sessions."""
    worker.lease._end_sessions_of = lambda *_: None  # type: ignore[method-assign]


class Pause:
    """Stops an import inside its transaction, after the content was written."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, worker: Worker, idle_limit: str = "30s"
    ) -> None:
        self.reached, self.over = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        apply = importer.apply

        def paused_apply(connection: Any, *rest: Any, **more: Any) -> None:
            apply(connection, *rest, **more)
            if connection is worker.session._connection:  # type: ignore[union-attr]
                connection.execute(  # with its answer, what was sent has been done
                    "SELECT set_config('idle_in_transaction_session_timeout', %s, false)",
                    (idle_limit,),
                ).fetchone()
                self.reached.set()
                self.over.wait(120)

        monkeypatch.setattr(importer, "apply", paused_apply)
        self._thread = threading.Thread(target=self._run, args=(worker,))
        self._thread.start()
        assert self.reached.wait(120)

    def _run(self, worker: Worker) -> None:
        try:
            worker.run()
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self.over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


def test_r11_a_worker_paused_inside_a_transaction_is_replaced_and_cannot_commit(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = workers(), workers()
    feed.add(page("/a"))
    old.begin()
    pause = Pause(monkeypatch, old)
    expire_lease(old)
    new.begin()
    new.run()
    pause.end()
    assert isinstance(pause.error, SessionLost)
    assert_is_the_fold(new.url, feed)
    assert rows_of(new.url, "SELECT count(*) FROM bookkeeping.status") == [(1,)]


def test_where_sessions_cannot_be_ended_the_idle_limit_ends_them(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = workers(), workers()
    feed.add(page("/a"))
    old.begin()
    pause = Pause(monkeypatch, old, "1s")
    expire_lease(old)
    end_nobody(new)
    new.begin()
    new.run()
    pause.end()
    assert isinstance(pause.error, SessionLost)
    assert_is_the_fold(new.url, feed)


class CutCommit:
    """A subscription's connection whose commit is never answered; it happened, or it did not."""

    def __init__(self, connection: psycopg.Connection, *, happens: bool) -> None:
        self._connection, self._happens = connection, happens
        self.cuts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        if self._happens:
            with self._connection.transaction() as transaction:
                yield transaction
        else:
            self._connection.execute("BEGIN")
            yield None
        self.cuts += 1
        self._connection.close()
        raise psycopg.OperationalError("the connection was lost while it committed")


@pytest.mark.parametrize("happens", [True, False])
def test_r26_an_unknown_commit_is_looked_up_before_anything_else(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch, happens: bool
) -> None:
    worker = workers()
    feed.producer = "author"
    feed.add(page("/a", 1))
    worker.run()
    before = position_of(worker.url)
    last = feed.add(page("/a", 2))
    cut_next_import(monkeypatch, happens)
    with pytest.raises(SessionLost):
        worker.run()
    assert (position_of(worker.url) != before) is happens
    session = worker.begin()
    assert session.position.offset == (last if happens else before.offset)
    worker.run()
    worker.send_statuses()
    assert [status.offset for status in feed.statuses()] == [before.offset, last]
    assert_is_the_fold(worker.url, feed)


def cut_next_import(monkeypatch: pytest.MonkeyPatch, happens: bool) -> None:
    """Cut the commit of the next import, and let the attempt's own row through."""
    commit = Importer.commit

    def cutting(self: Importer, connection: Any, *rest: Any) -> Any:
        monkeypatch.setattr(Importer, "commit", commit)
        cut: Any = CutCommit(connection, happens=happens)
        return commit(self, cut, *rest)

    monkeypatch.setattr(Importer, "commit", cutting)


def test_r11_a_takeover_raises_the_epoch_of_every_subscription(
    feed: Feed, workers: Workers
) -> None:
    first = workers()
    feed.add(page("/a"))
    first.run()
    other = workers(agent="other")
    first.die()
    other.begin()
    assert rows_of(first.url, "SELECT epoch FROM bookkeeping.position ORDER BY 1") == [(2,), (2,)]


def test_r8_a_subscription_that_removes_leaves_no_node_without_its_folders(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, remover = workers(agent="writer"), workers(agent="remover", lock_ms=100)
    feed.add(page("/a"), agent="writer")
    writer.run()
    remover.lease = writer.lease
    remover.lease_connection = writer.lease_connection
    feed.add(page("/a/b"), agent="writer")
    pause = Pause(monkeypatch, writer)
    feed.delete("/a", agent="remover")
    remover.step_until_reported("lock timeout")
    pause.end()
    remover.run()
    assert content_of(writer.url) == {}
    remover.lease_connection = None
