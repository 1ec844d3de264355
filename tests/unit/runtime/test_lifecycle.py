"""Components: in order, in reverse, and none that dies unseen."""

import logging
import threading

import psycopg
import pytest

from packhorse.runtime import lifecycle
from packhorse.runtime.lifecycle import Lifecycle, Worker
from packhorse.runtime.periodic import Periodic
from tests.harness.clock import ManualClock

DEADLINE_S = 120.0


class Recorded:
    def __init__(self, name: str, log: list[str], *, fails: str = "") -> None:
        self.name, self.log, self.fails = name, log, fails

    def start(self) -> None:
        self._do("start")

    def stop(self, timeout: float) -> None:
        self._do("stop")

    def _do(self, what: str) -> None:
        self.log.append(f"{what} {self.name}")
        if self.fails == what:
            raise RuntimeError(self.name)


def test_components_start_in_order_and_stop_in_reverse() -> None:
    log: list[str] = []
    with Lifecycle([Recorded(name, log) for name in "abc"]):
        log.append("work")
    expected = ["start a", "start b", "start c", "work", "stop c", "stop b", "stop a"]
    assert log == expected


def test_a_start_that_fails_stops_what_had_started() -> None:
    log: list[str] = []
    components = [Recorded("a", log), Recorded("b", log, fails="start"), Recorded("c", log)]
    with pytest.raises(RuntimeError, match="b"), Lifecycle(components):
        log.append("never")
    assert log == ["start a", "start b", "stop a"]


def test_a_stop_that_fails_does_not_keep_the_others_running() -> None:
    log: list[str] = []
    with Lifecycle([Recorded("a", log), Recorded("b", log, fails="stop")]):
        pass
    assert log[-2:] == ["stop b", "stop a"]


class Slow:
    """A component that takes all the time that it is given to stop."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock, self.given = clock, 0.0

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None:
        self.given = timeout
        self._clock.advance(timeout)


def test_all_components_together_may_take_the_time_that_one_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last ones have a moment too: a cluster is left, a lease is given back."""
    clock = ManualClock()
    monkeypatch.setattr(lifecycle, "monotonic", clock.monotonic)
    components = [Slow(clock) for _ in range(3)]
    with Lifecycle(components):
        pass
    assert [one.given for one in components] == [1.0, 1.0, lifecycle.STOP_TIMEOUT_S]


def test_a_worker_that_is_asked_to_end_has_not_died() -> None:
    ended = threading.Event()

    def work(stopping: threading.Event) -> None:
        stopping.wait()
        ended.set()

    worker = Worker("w", work)
    with Lifecycle([worker]) as lifecycle:
        lifecycle.check()
    assert ended.is_set()
    assert worker.failure() is None


@pytest.mark.parametrize("fails", [True, False])
def test_a_worker_that_ends_by_itself_has_died(fails: bool) -> None:
    gone = threading.Event()

    def work(stopping: threading.Event) -> None:
        gone.set()
        if fails:
            raise ValueError("poison")

    worker = Worker("w", work)
    with Lifecycle([worker]) as lifecycle:
        gone.wait(DEADLINE_S)
        worker.stop(DEADLINE_S)
        if fails:
            with pytest.raises(RuntimeError, match="Worker has died"):
                lifecycle.check()


def test_stopping_what_never_started_is_a_success() -> None:
    Worker("w", lambda stopping: None).stop(1.0)
    Periodic("p", 1.0, lambda: None).stop(1.0)


class Rounds:
    """An action that counts, and can be held or made to fail."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False
        self.may_go = threading.Event()
        self.may_go.set()
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        assert self.may_go.wait(DEADLINE_S)
        if self.fails:
            raise RuntimeError("a bad round")

    def until(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, DEADLINE_S)


def test_a_round_comes_after_each_interval_and_not_before() -> None:
    clock, rounds = ManualClock(), Rounds()
    with Lifecycle([Periodic("p", 10.0, rounds, clock=clock)]):
        for expected in range(1, 4):
            clock.until_waited_on()
            clock.advance(9.9)
            clock.until_waited_on()
            assert rounds.count == expected - 1
            clock.advance(0.1)
            rounds.until(expected)


def test_the_first_round_can_come_at_once() -> None:
    rounds = Rounds()
    with Lifecycle([Periodic("p", 10.0, rounds, clock=ManualClock(), at_once=True)]):
        rounds.until(1)


def test_a_kick_brings_a_round_forward() -> None:
    clock, rounds = ManualClock(), Rounds()
    periodic = Periodic("p", 10.0, rounds, clock=clock)
    with Lifecycle([periodic]):
        periodic.kick()
        rounds.until(1)


def test_kicks_during_a_round_become_one_more() -> None:
    clock, rounds = ManualClock(), Rounds()
    rounds.may_go.clear()
    periodic = Periodic("p", 10.0, rounds, clock=clock)
    with Lifecycle([periodic]):
        periodic.kick()
        rounds.until(1)
        for _ in range(5):
            periodic.kick()
        rounds.may_go.set()
        rounds.until(2)
        clock.until_waited_on()
    assert rounds.count == 2


@pytest.mark.parametrize("during_a_round", [True, False])
def test_what_was_asked_for_before_the_end_is_done_before_it(during_a_round: bool) -> None:
    rounds = Rounds()
    rounds.may_go.clear()
    periodic = Periodic("p", 10.0, rounds, clock=ManualClock(), at_once=during_a_round)
    if during_a_round:
        periodic.start()
        rounds.until(1)
    periodic.kick()
    periodic._worker.request_stop()
    rounds.may_go.set()
    if not during_a_round:
        periodic.start()
    periodic.stop(DEADLINE_S)
    assert rounds.count == 1 + during_a_round


def test_a_round_that_fails_is_not_the_last() -> None:
    clock, rounds = ManualClock(), Rounds()
    rounds.fails = True
    periodic = Periodic("p", 10.0, rounds, clock=clock)
    with Lifecycle([periodic]) as lifecycle:
        for expected in range(1, 4):
            periodic.kick()
            rounds.until(expected)
        lifecycle.check()


def test_a_fault_that_lasts_is_told_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, over = ManualClock(), threading.Event()
    outcomes: list[Exception | None] = [psycopg.OperationalError("the database is away")] * 4
    outcomes += [RuntimeError("a fault of ours"), None]

    def action() -> None:
        clock.advance(1.0)
        if (error := outcomes.pop(0)) is not None:
            raise error
        over.set()

    periodic = Periodic("p", 0.0, action, clock=clock, done=over.is_set)
    with caplog.at_level(logging.INFO), Lifecycle([periodic]):
        assert over.wait(DEADLINE_S)
    assert caplog.messages == [
        "the periodic work p can't be done now: the database is away",
        "the periodic work p failed",
        "the periodic work p is done again, after 5 s",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, True, False]
