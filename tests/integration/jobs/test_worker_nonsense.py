"""Consumers that return or say nonsense: their attempt fails, the worker goes on."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from tests.harness.jobs.hosted import FAST, hosted, until
from tests.harness.waiting import eventually

WAIT_S = 120.0
LONG = replace(FAST, lease_s=3600.0)
"""Nobody but the worker itself may end what went wrong: a lease outlasts the wait."""

QUEUE = QueueConfiguration(
    "quick", ("test/**",), type=QueueType.UNORDERED, max_retries=1, retry_delay_s=0.0
)


class Seven:
    """A number that is no int, as those of numeric libraries."""

    def __index__(self) -> int:
        return 7

    def __lt__(self, other: int) -> bool:
        return other > 7


def _says(act: Callable[[JobContext], Any]) -> Callable[[Job, JobContext], Any]:
    def consume(_job: Job, context: JobContext) -> Any:
        given = act(context)
        return Outcome.OK if given is None else given

    return consume


NONSENSE: dict[str, Callable[[JobContext], Any]] = {
    "message": lambda _: Result(Outcome.FAILED, ValueError("no text")),  # type: ignore[arg-type]
    "outcome": lambda _: Result("PERHAPS"),  # type: ignore[arg-type]
    "delay": lambda _: Result(Outcome.FAILED, retry_delay=5),  # type: ignore[arg-type]
    "negative-delay": lambda _: Result(Outcome.FAILED, retry_delay=timedelta(seconds=-1)),
    "longest-delay": lambda _: Result(Outcome.FAILED, retry_delay=timedelta.max),
    "large-step": lambda context: context.progress(2**70),
    "no-step": lambda context: context.progress(1.5),  # type: ignore[arg-type]
    "large-steps": lambda context: context.init_progress(2**70),
}


@pytest.mark.parametrize("what", sorted(NONSENSE))
def test_nonsense_is_a_failed_attempt_and_the_next_job_is_done(
    database_url: str, what: str
) -> None:
    consumers = {"test/bad": _says(NONSENSE[what]), "test/good": _says(lambda _: None)}
    with hosted(database_url, consumers, queues=[QUEUE], settings=LONG) as host:
        bad = host.jobs.add_job("test/bad").job.number
        until(host, bad, JobState.GIVEN_UP, timeout=WAIT_S)
        good = host.jobs.add_job("test/good").job.number
        until(host, good, JobState.SUCCEEDED, timeout=WAIT_S)
        eventually(lambda: not host.worker._running_jobs.slots.taken(), what="all places are free")


def test_a_step_may_be_any_whole_number(database_url: str) -> None:
    says = _says(lambda context: context.progress(Seven()))  # type: ignore[arg-type]
    with hosted(database_url, {"test/**": says}, queues=[QUEUE], settings=LONG) as host:
        done = until(
            host, host.jobs.add_job("test/a").job.number, JobState.SUCCEEDED, timeout=WAIT_S
        )
        assert done.progress.step == 7


def test_a_handle_refuses_nonsense_and_can_still_be_used(database_url: str) -> None:
    def consume(_job: Job, context: JobContext) -> Outcome:
        handle = context.handle()
        with pytest.raises(TypeError):
            handle.finish(Result(Outcome.OK, 1))  # type: ignore[arg-type]
        handle.finish(Result(Outcome.OK, "done"))
        return Outcome.ASYNC

    with hosted(database_url, {"test/**": consume}, queues=[QUEUE], settings=LONG) as host:
        done = until(
            host, host.jobs.add_job("test/a").job.number, JobState.SUCCEEDED, timeout=WAIT_S
        )
        assert done.result_message == "done"
