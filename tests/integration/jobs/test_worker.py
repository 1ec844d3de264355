"""A worker and its consumers: results, contexts, handles, time-outs, stops, clean ends."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from packhorse.jobs.consumer import JobContext, JobHandle, Outcome, Result
from packhorse.jobs.job import Job, JobLost, JobProgress, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.runtime import tracing
from tests.harness.jobs.hosted import hosted, until
from tests.harness.waiting import eventually

QUICK = QueueConfiguration(
    "quick",
    ("test/**",),
    type=QueueType.UNORDERED,
    max_parallel=4,
    max_retries=2,
    retry_delay_s=0.0,
)


def ok(job: Job, context: JobContext) -> Outcome:
    return Outcome.OK


def test_a_job_is_done_once(database_url: str) -> None:
    seen = []

    def consume(job: Job, context: JobContext) -> Result:
        seen.append((job.number, dict(job.properties), job.attempts, job.retry))
        return Result(Outcome.OK, "made")

    with hosted(database_url, {"test/*": consume}) as host:
        number = host.jobs.add_job("test/one", {"size": 3}).job.number
        done = until(host, number, JobState.SUCCEEDED)
    assert seen == [(number, {"size": 3}, 1, False)]
    assert (done.result_message, done.attempts) == ("made", 1)
    assert done.instance is not None


def fails(job: Job, context: JobContext) -> Outcome:
    return Outcome.FAILED


def raises(job: Job, context: JobContext) -> Outcome:
    raise OSError("disk\0 full")


def leaves(job: Job, context: JobContext) -> Outcome:
    raise SystemExit(3)


def answers_wrongly(job: Job, context: JobContext) -> Outcome:
    return "fine"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("consumer", "message"),
    [
        (fails, ""),
        (raises, "OSError: disk� full"),
        (leaves, "SystemExit: 3"),
        (answers_wrongly, "TypeError: a consumer returns a Result, an Outcome or None, not str"),
    ],
)
def test_a_failure_is_tried_again_and_given_up(
    database_url: str, consumer: Callable[[Job, JobContext], Outcome], message: str
) -> None:
    with hosted(database_url, {"test/**": consumer}, queues=[QUICK]) as host:
        number = host.jobs.add_job("test/a/b").job.number
        done = until(host, number, JobState.GIVEN_UP)
    assert done.attempts == 3
    assert [one.outcome for one in done.past_attempts] == ["FAILED"] * 3
    assert done.result_message == message


def test_a_cancelled_job_is_not_tried_again(database_url: str) -> None:
    def consume(job: Job, context: JobContext) -> Result:
        return Result(Outcome.CANCEL, "no such picture")

    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        done = until(host, host.jobs.add_job("test/a").job.number, JobState.ERROR)
    assert (done.attempts, done.result_message) == (1, "no such picture")


def test_a_consumer_says_when_it_wants_to_try_again(database_url: str) -> None:
    def consume(job: Job, context: JobContext) -> Result:
        if job.attempts == 1:
            assert not job.retry
            return Result(Outcome.FAILED, "away", timedelta(0))
        assert job.retry
        return Result(Outcome.OK)

    slow = QueueConfiguration("slow", ("test/**",), retry_delay_s=3600)
    with hosted(database_url, {"test/**": consume}, queues=[slow]) as host:
        done = until(host, host.jobs.add_job("test/a").job.number, JobState.SUCCEEDED)
    assert [one.reason for one in done.past_attempts] == ["away"]


def test_the_effect_of_a_completion_is_there_with_the_end_of_the_job(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE effect (number bigint)")  # the login's own

    def consume(job: Job, context: JobContext) -> None:
        with context.completion() as connection:
            connection.row_factory = dict_row
            row = connection.execute(
                "INSERT INTO effect VALUES (%s) RETURNING number", (job.number,)
            ).fetchone()
            assert row == {"number": job.number}
            if job.attempts == 1:
                raise OSError("once")

    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        number = host.jobs.add_job("test/a").job.number
        done = until(host, number, JobState.SUCCEEDED)
        eventually(lambda: not host.worker._running_jobs.slots.taken(), what="its place is free")
    assert done.attempts == 2
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT number FROM effect").fetchall() == [(number,)]


def test_what_was_said_before_a_commit_that_failed_is_there_for_the_next_attempt(
    database_url: str,
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE effect (number bigint UNIQUE DEFERRABLE)")
    seen: list[object] = []

    def consume(job: Job, context: JobContext) -> None:
        seen.append((job.extra, job.log))
        context.set_property("pages", job.attempts)
        context.log(f"attempt {job.attempts}")
        with context.completion() as connection:
            connection.execute("SET CONSTRAINTS ALL DEFERRED")
            number = [job.number] * (2 if job.attempts == 1 else 1)
            connection.execute("INSERT INTO effect SELECT unnest(%s::bigint[])", (number,))

    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        number = host.jobs.add_job("test/a").job.number
        done = until(host, number, JobState.SUCCEEDED)
    assert seen == [({}, ()), ({"pages": 1}, ("attempt 1",))]
    assert (done.extra, done.log) == ({"pages": 2}, ("attempt 1", "attempt 2"))


def cancels() -> Outcome:
    return Outcome.CANCEL


def breaks() -> Outcome:
    raise OSError("cleaning up")


@pytest.mark.parametrize("then", [cancels, breaks])
def test_what_comes_after_a_completion_does_not_count(
    database_url: str, then: Callable[[], Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    def consume(job: Job, context: JobContext) -> Outcome:
        with context.completion():
            pass
        with pytest.raises(JobLost), context.completion():
            pass
        return then()

    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        number = host.jobs.add_job("test/a").job.number
        until(host, number, JobState.SUCCEEDED)
        eventually(lambda: not host.worker._running_jobs.slots.taken(), what="its place is free")
        assert host.jobs.get(number).state is JobState.SUCCEEDED
    assert "failed" not in caplog.text


def test_a_consumer_that_returns_nothing_has_done_its_work(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def consume(job: Job, context: JobContext) -> None:
        if job.properties["completes"]:
            with context.completion():
                pass

    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        for completes in (True, False):
            number = host.jobs.add_job("test/a", {"completes": completes}).job.number
            assert until(host, number, JobState.SUCCEEDED).attempts == 1
        eventually(lambda: not host.worker._running_jobs.slots.taken(), what="its place is free")
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]


def test_progress_log_and_properties_are_seen_while_it_works(database_url: str) -> None:
    reported, go_on = threading.Event(), threading.Event()

    def consume(job: Job, context: JobContext) -> Outcome:
        context.init_progress(4)
        context.progress(1, "one", timedelta(minutes=1))
        context.log("began")
        context.set_property("pages", [1, 2])
        reported.set()
        assert go_on.wait(120)
        context.progress(4, "all")
        context.log("ended")
        return Outcome.OK

    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        number = host.jobs.add_job("test/a").job.number
        assert reported.wait(120)

        def shown() -> Job:
            job = host.jobs.get(number)
            assert (job.log, job.extra) == (("began",), {"pages": [1, 2]})
            return job

        job = eventually(shown, what="all that it has reported")
        assert (job.progress.step, job.progress.steps, job.progress.message) == (1, 4, "one")
        assert job.progress.eta is not None
        assert job.started_at is not None
        assert job.started_at <= job.progress.eta - timedelta(minutes=1) <= datetime.now(UTC)
        go_on.set()
        done = until(host, number, JobState.SUCCEEDED)
    assert done.log == ("began", "ended")
    assert done.progress == JobProgress(4, 4, job.progress.eta, "all")


def test_a_job_ends_later_through_its_handle(database_url: str) -> None:
    handles: list[JobHandle] = []

    def consume(job: Job, context: JobContext) -> Outcome:
        handles.append(context.handle())
        return Outcome.ASYNC

    one = QueueConfiguration("one", ("test/**",), type=QueueType.UNORDERED, max_parallel=1)
    with hosted(database_url, {"test/**": consume}, queues=[one]) as host:
        first = host.jobs.add_job("test/a").job.number
        second = host.jobs.add_job("test/a").job.number
        eventually(lambda: len(handles) == 1, what="the first")
        until(host, first, JobState.ACTIVE)
        assert host.jobs.get(second).state is JobState.QUEUED, "the place is taken"
        with pytest.raises(ValueError, match="handle ends"):
            handles[0].finish(Outcome.ASYNC)
        handles[0].finish(Result(Outcome.OK, "at last"))
        assert host.jobs.get(first).result_message == "at last"
        with pytest.raises(JobLost):
            handles[0].finish(Outcome.OK)
        eventually(lambda: len(handles) == 2, what="the second")
        handles[1].finish(Outcome.CANCEL)
        assert host.jobs.get(second).state is JobState.ERROR


def test_a_job_works_in_the_trace_of_who_gave_it(database_url: str) -> None:
    traces = []

    def consume(job: Job, context: JobContext) -> Outcome:
        traces.append(tracing.trace_id())
        return Outcome.OK

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with hosted(database_url, {"test/**": consume}, queues=[QUICK]) as host:
        with tracing.continued({"traceparent": trace.encode()}):
            number = host.jobs.add_job("test/a").job.number
        assert until(host, number, JobState.SUCCEEDED).traceparent is not None
    assert traces == ["0af7651916cd43dd8448eb211c80319c"]


def test_a_job_without_a_consumer_waits_for_a_program_that_has_one(database_url: str) -> None:
    with hosted(database_url, {"other/**": ok}) as host:
        number = host.jobs.add_job("test/a").job.number
        until(host, host.jobs.add_job("other/a").job.number, JobState.SUCCEEDED)
        assert host.jobs.get(number).state is JobState.QUEUED
        with hosted(database_url, {"test/**": ok}):
            assert until(host, number, JobState.SUCCEEDED).attempts == 1
