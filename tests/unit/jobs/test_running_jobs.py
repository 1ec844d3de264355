"""Who works on what: places, ends, stops, what is lost and what nobody works on."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobLost
from packhorse.jobs.store.leases import HeldAttempt
from packhorse.jobs.work.attempt import RunningAttempt, StopReason
from packhorse.jobs.work.running_jobs import End, Reply, ResultQueue, RunningJobs, Slots
from tests.harness.clock import ManualClock
from tests.harness.jobs.made import claimed

OK, FAILED, LATER = Result(Outcome.OK), Result(Outcome.FAILED), Result(Outcome.ASYNC)


def begun(
    running_jobs: RunningJobs, number: int = 1, timeout_s: float | None = None
) -> RunningAttempt:
    running = RunningAttempt(claimed(number, timeout_s), ManualClock())
    running_jobs.begin(running)
    return running


def running_jobs() -> RunningJobs:
    return RunningJobs(Slots(places=10, usual=2))


def test_a_place_is_free_once_the_end_is_stored_and_the_thread_is_back() -> None:
    crew = running_jobs()
    running = begun(crew)
    assert crew.slots.taken() == {"main": 1}
    crew.returned(running, OK)
    assert crew.leaving() == ["main"]
    [end] = crew.ends(5)
    assert (end.running, end.result, end.gives_back) == (running, OK, False)
    assert crew.has_to_write(0)
    assert not crew.is_settled
    assert crew.slots.taken() == {"main": 1}
    crew.stored(end, lost=False)
    assert crew.slots.taken() == {}
    assert crew.is_settled
    assert not running.stop_requested_for(StopReason.LOST)


def test_an_end_that_is_not_stored_with_the_others_keeps_its_place() -> None:
    crew = running_jobs()
    held, other = begun(crew), begun(crew, 2)
    for running in (held, other):
        crew.returned(running, OK)
    first, second = crew.ends(5)
    assert crew.leaving() == ["main", "main"]
    assert crew.leaving([other]) == ["main"]
    crew.put_last(first.running)
    crew.stored(second, lost=False)
    assert crew.ends(5) == [first]
    assert (crew.unstored, crew.leaving([])) == (1, [])
    assert crew.slots.taken() == {"main": 1}


def test_a_job_that_ends_later_keeps_its_place_until_its_handle_is_used() -> None:
    crew = running_jobs()
    running, reply = begun(crew), Reply()
    crew.returned(running, LATER)
    assert crew.ends(5) == []
    assert not crew.is_settled
    assert running.close()
    crew.submitted(End(running, OK, reply=reply))
    crew.stored(crew.ends(5)[0], lost=True)
    assert not reply.wait()
    assert crew.slots.taken() == {}


def test_an_early_handle_leaves_the_place_to_the_thread() -> None:
    crew = running_jobs()
    running, reply = begun(crew), Reply()
    assert running.close()
    crew.submitted(End(running, OK, reply=reply))
    assert crew.leaving() == []
    crew.stored(crew.ends(5)[0], lost=False)
    assert reply.wait()
    assert crew.slots.taken() == {"main": 1}
    crew.returned(running, FAILED)
    assert crew.ends(5) == []
    assert crew.slots.taken() == {}


def test_an_attempt_whose_time_is_over_keeps_its_place_until_its_thread_is_back() -> None:
    crew = running_jobs()
    running = begun(crew, timeout_s=5)
    begun(crew, 2)
    assert running.deadline is not None
    assert crew.next_deadline() == running.deadline == 1_005  # its clock begins at 1,000
    assert crew.overdue(running.deadline - 0.1) == []
    assert crew.overdue(running.deadline) == [running]
    assert crew.has_to_write(running.deadline)
    crew.over(running, StopReason.TIME)
    assert crew.overdue(running.deadline) == []
    assert crew.next_deadline() is None
    assert crew.slots.taken() == {"main": 2}
    crew.returned(running, OK)
    assert crew.ends(5) == []
    assert crew.slots.taken() == {"main": 1}


def test_a_job_that_ends_later_gives_its_place_back_when_its_time_is_over() -> None:
    crew = running_jobs()
    running = begun(crew, timeout_s=5)
    crew.returned(running, LATER)
    crew.over(running, StopReason.TIME)
    assert crew.slots.taken() == {}


def test_what_the_store_has_not_is_lost_and_what_nobody_has_is_a_stray() -> None:
    crew = running_jobs()
    mine, lost, completing, ended, on = (begun(crew, number) for number in range(1, 6))
    completing.completing = True
    crew.returned(ended, OK)
    held = [
        HeldAttempt(1, 1, True),
        HeldAttempt(4, 1, False),
        HeldAttempt(5, 1, False),
        HeldAttempt(9, 2, False),
        HeldAttempt(2, 7, False),
    ]
    gone, strays = crew.compare(held)
    assert gone == [lost]
    assert {(one.number, one.epoch) for one in strays} == {(9, 2), (2, 7)}
    assert mine.stop_requested_for(StopReason.REQUESTED)
    assert not completing.stop_requested
    assert not on.stop_requested


def test_only_a_failure_because_the_process_ends_is_given_back() -> None:
    crew = running_jobs()
    before, plain, requested, late, well, cancelled = (begun(crew, n) for n in range(1, 7))
    crew.returned(before, FAILED)
    crew.request_stop_of_all(StopReason.LEAVING)
    requested.request_stop(StopReason.REQUESTED)
    late.request_stop(StopReason.TIME)
    for failed in (plain, requested, late):
        crew.returned(failed, FAILED)
    crew.returned(well, OK)
    crew.returned(cancelled, Result(Outcome.CANCEL))
    given_back = [end.running for end in crew.ends(9) if end.gives_back]
    assert given_back == [plain]


def test_an_end_that_can_not_be_stored_lets_the_others_go_first() -> None:
    crew = running_jobs()
    for number in range(1, 4):
        crew.returned(begun(crew, number), OK)
    crew.put_last()
    assert [end.running.job.number for end in crew.ends(2)] == [2, 3]
    running_jobs().put_last()


def test_who_leaves_answers_everybody() -> None:
    crew = running_jobs()
    working, handed, reply = begun(crew), begun(crew, 2), Reply()
    handed.close()
    crew.submitted(End(handed, OK, reply=reply))
    crew.abandon()
    assert not reply.wait()
    assert working.stop_requested_for(StopReason.LOST)
    assert crew.is_settled


def test_a_result_that_comes_as_the_process_leaves_waits_for_no_answer() -> None:
    """Nobody stores it any more."""
    bell, nobody, crew = threading.Event(), nullcontext[Any](), running_jobs()
    results = ResultQueue(lambda: nobody, bell)
    with ThreadPoolExecutor(2) as threads:
        early = threads.submit(results.submit_result, begun(crew), OK)
        assert bell.wait(120)
        results.close()
        with pytest.raises(JobLost, match="was not stored in time"):
            early.result(120)
        late = threads.submit(results.submit_result, begun(crew, 2), OK)
        with pytest.raises(JobLost, match="is over"):
            late.result(120)
