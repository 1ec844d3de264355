"""The thread that gathers requests: every request gets an answer, whatever happens."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import psycopg
import pytest

from packhorse.db.connect import AWAY
from packhorse.errors import Permanent
from packhorse_services.publisher.outbox.append_lock import AppendLockBusy
from packhorse_services.publisher.outbox.idempotency import KeyInProgress
from packhorse_services.publisher.outbox.request import Pending, ReleaseVersion
from packhorse_services.publisher.publish.publish_queue import NO_PROGRESS_S, NoProgress
from packhorse_services.publisher.publish.request_intake import PublisherStopping
from tests.harness.clock import ManualClock
from tests.harness.publishing import request
from tests.harness.scripted_publishing import (
    Gate,
    HastyClock,
    ScriptedPublishing,
    answer_all,
    answer_first,
    fail_with,
    running,
)
from tests.harness.waiting import eventually

T = TypeVar("T")


class RefusedPublishing(ScriptedPublishing):
    """May not look into the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.settled = threading.Event()

    def reconcile(self) -> bool:
        self.settled.set()
        raise Permanent("check the user's rights")


def unrefused(call: Callable[[], T], refusal: type[Exception]) -> T:
    """Call until it is not refused: a line's thread tidies up after it has answered."""

    def look() -> list[T]:
        try:
            return [call()]
        except refusal:
            return []

    return eventually(look, interval=0.005)[0]


def test_requests_gather_while_a_group_is_under_way() -> None:
    gate = Gate()
    publishing = ScriptedPublishing(gate)
    with running(publishing) as intake:
        pendings = [intake.submit(request("/a"))]
        assert gate.reached.wait(120)
        pendings += [intake.submit(request("/a")) for _ in range(70)]
        pendings[1].future.cancel()
        gate.open.set()
        for pending in pendings[:1] + pendings[2:]:
            assert pending.future.result(120).offset == 1
    assert publishing.groups == [1, 63, 6]


def test_what_one_round_leaves_the_next_one_takes() -> None:
    gate = Gate()
    publishing = ScriptedPublishing(gate, answer_first, answer_first)
    with running(publishing) as intake:
        intake.submit(request("/a"))
        assert gate.reached.wait(120)
        pendings = [intake.submit(request("/a")) for _ in range(3)]
        gate.open.set()
        for pending in pendings:
            pending.future.result(120)
    assert publishing.groups == [1, 3, 2, 1]


@pytest.mark.parametrize("error", [AppendLockBusy("busy"), *(kind("cut") for kind in AWAY)])
def test_r26_a_round_that_failed_is_played_again(error: Exception) -> None:
    publishing = ScriptedPublishing(fail_with(error), answer_all)
    with running(publishing) as intake:
        assert intake.submit(request("/a")).future.result(120).offset == 1
    assert publishing.groups == [1, 1]


def test_a_database_that_stays_away_is_reported() -> None:
    cut = psycopg.OperationalError("cut")
    with running(ScriptedPublishing(*[fail_with(cut)] * 100), give_up_s=0.0) as intake:
        future = intake.submit(request("/a")).future
        assert future.exception(120) is cut


def test_failures_with_progress_in_between_are_counted_anew() -> None:
    gate, clock, cut = Gate(), HastyClock(), fail_with(psycopg.OperationalError("cut"))

    def answer_one(group: Sequence[Pending]) -> None:
        clock.advance(30)
        answer_first(group)

    publishing = ScriptedPublishing(gate, cut, answer_one, cut)
    with running(publishing, clock, give_up_s=20.0) as intake:
        intake.submit(request("/a"))
        assert gate.reached.wait(120)
        pendings = [intake.submit(request("/a")) for _ in range(3)]
        gate.open.set()
        for pending in pendings:
            assert pending.future.result(120).offset == 1


def test_a_bug_fails_its_group_and_not_the_thread() -> None:
    with running(ScriptedPublishing(fail_with(ZeroDivisionError()))) as intake:
        with pytest.raises(ZeroDivisionError):
            intake.submit(request("/a")).future.result(120)
        assert intake.submit(request("/a")).future.result(120).offset == 1


def test_a_journal_that_refuses_fails_requests_and_not_the_thread() -> None:
    publishing = RefusedPublishing()
    with running(publishing) as intake:
        assert publishing.settled.wait(120)
        assert intake.submit(request("/a")).future.result(120).offset == 1
    assert intake.failure() is None


def test_r5_a_key_is_free_again_when_its_request_is_answered() -> None:
    gate = Gate()

    def again() -> Pending:
        return intake.submit(request("/a", key="k"))

    with running(ScriptedPublishing(gate, fail_with(ZeroDivisionError()))) as intake:
        first = intake.submit(request("/a", key="k"))
        with pytest.raises(KeyInProgress):
            intake.submit(request("/a", key="k"))
        gate.open.set()
        first.future.result(120)
        second = unrefused(again, KeyInProgress)
        with pytest.raises(ZeroDivisionError):
            second.future.result(120)
        unrefused(again, KeyInProgress).future.result(120)


def test_a_release_is_not_twice_in_one_group() -> None:
    gate, release = Gate(), ReleaseVersion("release-1", 1)
    with running(ScriptedPublishing(gate)) as intake:
        first = intake.submit(replace(request("/a"), release=release))
        with pytest.raises(KeyInProgress):
            intake.submit(replace(request("/a"), release=release))
        other = intake.submit(replace(request("/a"), release=replace(release, version=2)))
        gate.open.set()
        for pending in (first, other):
            assert pending.future.result(120).offset == 1


def test_stopping_answers_everybody() -> None:
    gate = Gate()
    publishing = ScriptedPublishing(gate)
    with running(publishing) as intake:
        first = intake.submit(request("/a"))
        assert gate.reached.wait(120)
        waiting = intake.submit(request("/a"))
        publishing.on_stop = gate.open.set  # so that the line knows of its end when it goes on
    assert first.future.result(0).offset == 1
    with pytest.raises(PublisherStopping):
        waiting.future.result(0)
    with pytest.raises(PublisherStopping):
        intake.submit(request("/a"))


def test_a_group_that_gets_nowhere_makes_the_replica_unready() -> None:
    gate, clock = Gate(), ManualClock()
    publishing = ScriptedPublishing(gate)
    with running(publishing, clock) as intake:
        intake.check()
        future = intake.submit(request("/a")).future
        assert gate.reached.wait(120)
        clock.advance(NO_PROGRESS_S - 1)
        intake.check()
        clock.advance(2)
        with pytest.raises(NoProgress, match=r"exporter: 1 requests .* 181 s .* restart"):
            intake.check()
        publishing.steps += 1  # a node of a large export
        intake.check()
        clock.advance(NO_PROGRESS_S - 1)
        intake.check()
        clock.advance(2)
        with pytest.raises(NoProgress):
            intake.check()
        gate.open.set()
        assert future.result(120).offset == 1
        clock.advance(NO_PROGRESS_S + 1)
        unrefused(intake.check, NoProgress)
