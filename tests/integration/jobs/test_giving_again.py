"""A job that is given again after it was done: all that is said the second time holds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store.adding import AddedJob, AddResult, InvalidJob, add_job, requeue_finished
from packhorse.jobs.store.finishing import end_waiting
from packhorse.jobs.store.given import NewJob
from packhorse.jobs.store.queues import put_queue
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import bookkeeper

FIRST = NewJob("a/b", {"n": 1}, id="x", priority=5, max_retries=3)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def give(url: str, job: NewJob) -> AddedJob:
    with bookkeeper(url) as connection:
        return add_job(connection, "app", job)


def given_again(url: str, **said: Any) -> Job:
    """Give a job, do it, and give it again with something else."""
    number, worker = give(url, FIRST).job.number, HandyWorker(url)
    assert worker.do() == number
    again = give(url, replace(NewJob("a/b", {"n": 2}, id="x"), **said))
    assert (again.verdict, again.job.number) == (AddResult.REACTIVATED, number)
    return again.job


def test_a_delay_is_kept(database_url: str) -> None:
    job = given_again(database_url, delay=timedelta(hours=1))
    assert job.ready_at - job.created_at > timedelta(minutes=59)
    assert HandyWorker(database_url).claim() == [], "it is not begun before"


def test_a_time_is_kept(database_url: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    assert given_again(database_url, ready_at=later).ready_at == later
    assert HandyWorker(database_url).claim() == []


def test_without_a_time_it_is_begun_at_once(database_url: str) -> None:
    given_again(database_url)
    assert len(HandyWorker(database_url).claim()) == 1


def test_where_how_often_and_for_whom_are_those_of_the_second_time(database_url: str) -> None:
    job = given_again(database_url, priority=-1, only_on="i9", max_retries=0, traceparent=TRACE)
    assert (job.properties, job.priority, job.only_on) == ({"n": 2}, -1, "i9")
    assert (job.max_retries, job.traceparent) == (0, TRACE)


def test_what_is_not_said_the_second_time_is_as_its_queue_says(database_url: str) -> None:
    job = given_again(database_url)
    assert (job.priority, job.only_on, job.max_retries, job.traceparent) == (0, None, 10, None)


@pytest.mark.parametrize("hours", [0, 12])
def test_a_time_that_no_datetime_can_hold_somewhere_is_refused(
    database_url: str, hours: int
) -> None:
    moment = datetime(9999, 12, 31, 23, tzinfo=UTC) - timedelta(hours=hours)
    with pytest.raises(InvalidJob, match="9000"):
        give(database_url, NewJob("a/b", ready_at=moment))


@pytest.mark.parametrize(("own", "then"), [(None, 7), (0, 0)])
def test_a_retry_goes_by_what_its_queue_says_then(
    database_url: str, own: int | None, then: int
) -> None:
    queue = QueueConfiguration("few", ("a/**",), type=QueueType.UNORDERED, max_retries=0)
    with bookkeeper(database_url) as connection:
        put_queue(connection, queue)
    given, worker = give(database_url, NewJob("a/b", max_retries=own)), HandyWorker(database_url)
    [claimed] = worker.claim(queue="few")
    assert worker.finish(claimed, Outcome.FAILED).state is JobState.GIVEN_UP
    with bookkeeper(database_url) as connection:
        put_queue(connection, replace(queue, max_retries=7))
        [retried] = requeue_finished(connection, [given.job.number])
    assert retried.max_retries == then


def test_a_preference_for_its_creator_does_not_outlive_its_end(database_url: str) -> None:
    """Stopped while it was kept for its creator and retried: it is everybody's."""
    HandyWorker(database_url, "app")
    preferring = QueueConfiguration(
        "preferring", ("a/**",), type=QueueType.UNORDERED, prefer_creator=True
    )
    with bookkeeper(database_url) as connection:
        put_queue(connection, preferring)
    number = give(database_url, replace(FIRST, delay=timedelta(hours=1))).job.number
    with bookkeeper(database_url) as connection:
        [stopped] = end_waiting(connection, [number], JobState.STOPPED, "")
        [retried] = requeue_finished(connection, [number])
    assert (stopped.only_on, retried.only_on) == (None, None)
    assert len(HandyWorker(database_url, "i2").claim(queue="preferring")) == 1
