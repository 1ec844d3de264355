"""What the lines of requests do over time: try again, look after the outbox, stand still, end."""

import threading
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from packhorse.clock import SystemClock
from packhorse.messaging.numbered import Number
from packhorse_services.publisher.outbox.append_lock import AppendLockBusy
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending
from packhorse_services.publisher.publish import publish_queue
from packhorse_services.publisher.publish.publish_queue import (
    NO_PROGRESS_S,
    NoProgress,
    PublisherStopping,
    PublishQueue,
    TooManyWaiting,
)
from packhorse_services.publisher.publish.request_intake import RequestIntake
from tests.harness.clock import ManualClock
from tests.harness.crash import Crash
from tests.harness.publishing import request
from tests.harness.scripted_publishing import (
    Gate,
    HastyClock,
    ScriptedPublishing,
    fail_with,
    running,
)
from tests.harness.waiting import eventually


def of_producer(*paths: str, deep: tuple[str, ...] = ()) -> DistributionRequest:
    return replace(request(*paths, deep=deep), producer=Number("main/import/tester", 1, 1))


def test_failures_are_given_up_after_their_time_and_not_hurried_through() -> None:
    cut = psycopg.OperationalError("cut")
    publishing = ScriptedPublishing(*[fail_with(cut)] * 100)
    with running(publishing, HastyClock(), give_up_s=1.0) as intake:
        assert intake.submit(request("/a")).future.exception(120) is cut
    assert publishing.groups == [1] * 5


class Looking(ScriptedPublishing):
    """Does what it is given at each look at the outbox."""

    def __init__(self, *looks: Callable[[], bool]) -> None:
        super().__init__()
        self._looks, self.looked = list(looks), 0

    def reconcile(self) -> bool:
        self.looked += 1
        return self._looks.pop(0)() if self._looks else True


def failing(error: Exception) -> Callable[[], bool]:
    def look() -> bool:
        raise error

    return look


def test_r26_an_outbox_that_is_not_settled_is_looked_at_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish_queue, "_BACKLOG_S", 0.01)
    monkeypatch.setattr(publish_queue, "_IDLE_S", 600.0)
    errors = AppendLockBusy("busy"), psycopg.OperationalError("cut")
    publishing = Looking(*map(failing, errors), lambda: False)
    with running(publishing) as intake:
        eventually(lambda: publishing.looked == 4, "the outbox is settled")
        assert intake.submit(request("/a")).future.result(120).offset == 1
        eventually(lambda: publishing.looked == 5, "it is looked at behind a group")


def test_what_comes_when_a_line_is_closed_is_refused() -> None:
    line = PublishQueue("line", ScriptedPublishing(), ManualClock(), give_up_s=1.0)
    line.stop(120)
    pending = Pending(request("/a"))
    line.put(pending)
    with pytest.raises(PublisherStopping):
        pending.future.result(0)


@pytest.mark.parametrize("started_first", [True, False])
def test_a_line_that_looks_after_nothing_begins_when_it_is_started_and_has_something(
    started_first: bool,
) -> None:
    line = PublishQueue(
        "calm", ScriptedPublishing(), SystemClock(), give_up_s=1.0, reconciles=False
    )
    pending = Pending(request("/a"))
    begin: list[Callable[[], None]] = [line.start, lambda: line.put(pending)]
    first, second = begin if started_first else reversed(begin)
    first()
    assert "calm" not in [thread.name for thread in threading.enumerate()]
    second()
    assert pending.future.result(120).offset == 1
    line.stop(120)


def test_the_group_under_way_is_the_last_one_once_a_stop_is_asked_for() -> None:
    gate = Gate()
    line = PublishQueue("line", ScriptedPublishing(gate), SystemClock(), give_up_s=1.0)
    line.start()
    pendings = [Pending(request("/a")), Pending(request("/b"))]
    line.put(pendings[0])
    assert gate.reached.wait(120)
    line.put(pendings[1])
    line.request_stop()
    gate.open.set()
    assert pendings[0].future.result(120).offset == 1
    with pytest.raises(PublisherStopping):
        pendings[1].future.result(120)
    line.stop(120)


def test_any_line_that_gets_nowhere_makes_the_replica_unready() -> None:
    gate, clock = Gate(), ManualClock()
    early = ScriptedPublishing(gate)
    with running(ScriptedPublishing(), clock, early=early) as intake:
        pending = intake.submit(request(deep=["/a"]))
        assert gate.reached.wait(120)
        clock.advance(NO_PROGRESS_S + 1)
        with pytest.raises(NoProgress, match="early-exporter"):
            intake.check()
        gate.open.set()
        assert pending.future.result(120).offset == 1


def test_a_line_whose_thread_dies_makes_the_replica_fail() -> None:
    death = Crash()
    early = ScriptedPublishing(fail_with(death))
    intake = RequestIntake(ScriptedPublishing(), SystemClock(), early=early)
    intake.start()
    intake.submit(request(deep=["/a"]))
    eventually(lambda: intake.failure() is death)
    intake.stop(120)


def test_r5_a_producer_keeps_its_line_as_long_as_it_has_requests_there() -> None:
    first, second = Gate(), Gate()
    early, sources = ScriptedPublishing(first, second), ScriptedPublishing()
    lines = {"early": early, "of_producers": sources}
    with running(ScriptedPublishing(), **lines) as intake:
        pendings = [intake.submit(of_producer(deep=("/a",)))]
        assert first.reached.wait(120)
        pendings.append(intake.submit(of_producer("/a")))
        first.open.set()
        assert second.reached.wait(120)
        pendings.append(intake.submit(of_producer("/a")))
        second.open.set()
        for pending in pendings:
            assert pending.future.result(120).offset == 1
        assert (early.groups, sources.groups) == ([1, 1, 1], [])

        def is_free() -> bool:
            intake.submit(of_producer("/a")).future.result(120)
            return bool(sources.groups)

        eventually(is_free, "it has left the line")


def test_a_request_that_is_not_taken_binds_its_producer_to_no_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early, sources = ScriptedPublishing(), ScriptedPublishing()
    lines = {"early": early, "of_producers": sources}
    with running(ScriptedPublishing(), **lines) as intake:
        with monkeypatch.context() as patched:
            patched.setattr(publish_queue, "_WAITING", 0)
            with pytest.raises(TooManyWaiting):
                intake.submit(of_producer(deep=("/a",)))
        intake.submit(of_producer("/a")).future.result(120)
    assert (early.groups, sources.groups) == ([], [1])
