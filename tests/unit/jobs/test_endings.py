"""What becomes of a job when an attempt ends."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from packhorse.jobs.job import JobState
from packhorse.jobs.store.endings import HeldJob, How, backoff, decide
from packhorse.jobs.store.notifications import CANCELLED, FAILED, FINISHED
from packhorse.jobs.store.statistics import of_decisions
from tests.harness.jobs.made import NOON


def held(**given: Any) -> HeldJob:
    """Return a job in its first attempt."""
    job = HeldJob(
        number=1,
        topic="a/b",
        id=None,
        queue="main",
        ordered=False,
        runtime_id="run",
        instance="i1",
        epoch=1,
        attempts=1,
        max_retries=2,
        retry=False,
        retry_delay_s=2.0,
        max_retry_delay_s=60.0,
        keep_history=True,
        again=False,
        stop_requested=False,
        ready_at=NOON,
        started_at=NOON + timedelta(seconds=3),
        now=NOON + timedelta(seconds=10),
        past_attempts=[],
    )
    return replace(job, **given)


@pytest.mark.parametrize(
    ("how", "given", "state"),
    [
        (How.OK, {}, JobState.SUCCEEDED),
        (How.OK, {"stop_requested": True}, JobState.SUCCEEDED),
        (How.CANCEL, {}, JobState.ERROR),
        (How.CANCEL, {"stop_requested": True}, JobState.STOPPED),
        (How.FAILED, {}, JobState.QUEUED),
        (How.FAILED, {"attempts": 2}, JobState.QUEUED),
        (How.FAILED, {"attempts": 3}, JobState.GIVEN_UP),
        (How.FAILED, {"attempts": 3, "max_retries": -1}, JobState.QUEUED),
        (How.FAILED, {"max_retries": 0}, JobState.GIVEN_UP),
        (How.FAILED, {"stop_requested": True}, JobState.STOPPED),
        (How.TIMED_OUT, {"attempts": 3}, JobState.GIVEN_UP),
        (How.LOST, {"attempts": 2}, JobState.QUEUED),
        (How.LOST, {"attempts": 3}, JobState.GIVEN_UP),
        (How.LOST, {"stop_requested": True}, JobState.STOPPED),
        (How.RELEASED, {"attempts": 3}, JobState.QUEUED),
        (How.RELEASED, {"stop_requested": True}, JobState.STOPPED),
        (How.UNBEGUN, {"attempts": 3}, JobState.QUEUED),
    ],
)
def test_the_state_after_an_attempt(how: How, given: dict[str, Any], state: JobState) -> None:
    assert decide(held(**given), how, "", 0.0).state is state


@pytest.mark.parametrize("how", list(How))
def test_a_job_that_was_given_again_runs_once_more(how: How) -> None:
    for attempts in (1, 3):
        decision = decide(held(again=True, attempts=attempts), how, "", 0.0)
        assert (decision.state, decision.attempts, decision.delay_s) == (JobState.QUEUED, 0, 0.0)


@pytest.mark.parametrize(
    ("how", "before", "after"),
    [
        (How.OK, True, False),
        (How.FAILED, False, True),
        (How.LOST, False, True),
        (How.RELEASED, False, True),
        (How.UNBEGUN, False, False),
        (How.UNBEGUN, True, True),
    ],
)
def test_retry_says_whether_a_part_may_have_been_done(how: How, before: bool, after: bool) -> None:
    assert decide(held(retry=before), how, "", 0.0).retry is after


def test_what_is_given_back_is_not_counted_and_not_delayed() -> None:
    for how in (How.RELEASED, How.UNBEGUN):
        decision = decide(held(attempts=2), how, "leaves", 0.0)
        assert (decision.attempts, decision.delay_s) == (1, 0.0)


def test_a_lost_job_is_tried_at_once_and_a_failed_one_later() -> None:
    assert decide(held(), How.LOST, "", 0.0).delay_s == 0.0
    assert decide(held(), How.FAILED, "", 0.0).delay_s == 2.0
    assert decide(held(attempts=2), How.TIMED_OUT, "", 0.0).delay_s == 4.0


def test_a_consumer_may_say_the_delay() -> None:
    assert decide(held(), How.FAILED, "", 0.5, 17.0).delay_s == 17.0
    assert decide(held(), How.FAILED, "", 0.5, -1.0).delay_s == 0.0
    later = held(attempts=4, max_retries=-1)  # its queue's delay is 16 s
    for asked, waited in ((17.0, 17.0), (5.0, 16.0), (None, 16.0)):
        assert decide(later, How.FAILED, "", 0.0, asked, lengthens=True).delay_s == waited


def test_the_delay_doubles_up_to_a_limit_and_is_never_longer() -> None:
    assert [backoff(n, 2.0, 20.0, 0.0) for n in (1, 2, 3, 4, 5, 10_000)] == [2, 4, 8, 16, 20, 20]
    assert 15.0 < backoff(9, 2.0, 20.0, 0.999) < 20.0
    assert backoff(3, 0.0, 20.0, 0.5) == 0.0


def test_what_did_not_finish_is_remembered() -> None:
    past = decide(held(attempts=2), How.LOST, "gone", 0.0).past
    assert past is not None
    assert (past.number, past.instance, past.outcome, past.reason) == (2, "i1", "LOST", "gone")
    assert decide(held(), How.OK, "", 0.0).past is None


def test_only_what_succeeded_without_an_id_may_be_forgotten() -> None:
    kept = [
        decide(held(keep_history=False), How.OK, "", 0.0).kept,
        decide(held(keep_history=False, id="x"), How.OK, "", 0.0).kept,
        decide(held(keep_history=False), How.CANCEL, "", 0.0).kept,
        decide(held(), How.OK, "", 0.0).kept,
    ]
    assert kept == [False, True, True, True]


def test_notifications() -> None:
    kinds = [decide(held(), how, "", 0.0).notification for how in How]
    assert kinds == [FINISHED, FAILED, CANCELLED, FAILED, FAILED, None, None]


def test_what_is_counted() -> None:
    decisions = [decide(held(), how, "", 0.0) for how in How]
    [(key, counts)] = of_decisions(decisions).items()
    assert key == ("main", "a/b", "i1")
    assert (counts.attempts, counts.failed_attempts) == (6, 3)
    assert (counts.succeeded, counts.errors, counts.given_up) == (1, 1, 0)
    assert (counts.waiting_s, counts.processing_s) == (18.0, 42.0)
