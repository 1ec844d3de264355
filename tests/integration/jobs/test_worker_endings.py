"""How attempts end that do not end by themselves: stops, time-outs, leaving, lost leases."""

import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from packhorse.jobs.consumer import JobContext, JobHandle, Outcome
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.job import Job, JobLost, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store import finishing
from packhorse.jobs.store.rescue import rescue
from packhorse.jobs.work import worker
from packhorse.jobs.work.attempt import RunningAttempt
from packhorse.jobs.work.context import AttemptContext
from packhorse.jobs.work.running_jobs import ResultQueue
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.hosted import FAST, hosted, until
from tests.harness.jobs.stored import bookkeeper, end_leases, jobs_of
from tests.harness.jobs.waits import Waits
from tests.harness.postgres import end_sessions
from tests.harness.waiting import eventually

QUEUE = QueueConfiguration(
    "quick", ("test/**",), type=QueueType.UNORDERED, max_parallel=2, retry_delay_s=0.0
)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.FAILED, JobState.STOPPED),
        (Outcome.CANCEL, JobState.STOPPED),
        (Outcome.OK, JobState.SUCCEEDED),
    ],
)
def test_a_job_is_stopped_from_another_instance(
    database_url: str, outcome: Outcome, state: JobState
) -> None:
    waits = Waits(outcome)
    with (
        hosted(database_url, {"test/**": waits}, queues=[QUEUE]) as host,
        hosted(database_url, {}) as other,
    ):
        number = host.jobs.add_job("test/a").job.number
        waits.await_begin()
        assert other.jobs.stop(number).stop_requested
        assert until(other, number, state).result_message == "attempt 1"


def test_a_job_that_takes_too_long_is_tried_again_and_keeps_its_place(database_url: str) -> None:
    waits = Waits(Outcome.OK, stops=False)
    queue = replace(QUEUE, timeout_s=0.5, max_retries=0, max_parallel=1)
    with hosted(database_url, {"test/**": waits}, queues=[queue]) as host:
        number = host.jobs.add_job("test/a").job.number
        waits.await_begin()
        given_up = until(host, number, JobState.GIVEN_UP)
        assert [one.outcome for one in given_up.past_attempts] == ["TIMED_OUT"]
        eventually(lambda: waits.contexts[0].stop_requested, what="it is asked to end")
        with pytest.raises(JobLost), waits.contexts[0].completion():
            pass
        host.jobs.put_queue(replace(queue, timeout_s=None))
        following = host.jobs.add_job("test/a").job.number
        assert host.worker._running_jobs.slots.taken() == {"quick": 1}, "its thread is still there"
        waits.go_on.set()
        until(host, following, JobState.SUCCEEDED)
        assert host.jobs.get(number).state is JobState.GIVEN_UP, "what it returned came too late"


def test_a_completion_that_stands_still_past_its_lease_keeps_nobody_from_the_job(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(database_url)
    number = jobs.add_job("test/a").job.number
    running = RunningAttempt(HandyWorker(database_url).claim()[0])
    finish = finishing.finish

    def taken() -> list[int]:
        with bookkeeper(database_url) as connection:
            return [one.held.number for one in rescue(connection)]

    def stand_still(*given: Any) -> Any:
        ended = finish(*given)
        end_leases(database_url)
        assert eventually(taken, what="the job is another one's") == [number]
        return ended

    monkeypatch.setattr(finishing, "finish", stand_still)
    results = ResultQueue(lambda: psycopg.connect(database_url), threading.Event())
    with (
        pytest.raises(psycopg.OperationalError),
        AttemptContext(running, results).completion(),
    ):
        pass
    assert jobs.get(number).state is JobState.QUEUED


def test_a_time_out_ends_a_job_whose_handle_nobody_uses(database_url: str) -> None:
    handles: list[JobHandle] = []

    def consume(job: Job, context: JobContext) -> Outcome:
        handles.append(context.handle())
        return Outcome.ASYNC

    queue = replace(QUEUE, timeout_s=0.3, max_retries=0)
    with hosted(database_url, {"test/**": consume}, queues=[queue]) as host:
        until(host, host.jobs.add_job("test/a").job.number, JobState.GIVEN_UP)
        eventually(lambda: not host.worker._running_jobs.slots.taken(), what="its place is free")
        with pytest.raises(JobLost):
            handles[0].finish(Outcome.OK)


def test_who_stops_gives_back_what_it_has_not_done(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_LAST_WORD_S", 119.0)  # of 120: it waits for one second
    stops, refuses = Waits(), Waits(stops=False)
    consumers = Consumers()
    consumers.add("test/stops", stops)
    consumers.add("test/refuses", refuses)
    with hosted(database_url, {}, queues=[QUEUE]) as other:
        with hosted(database_url, consumers, stop_s=120.0) as host:
            numbers = [host.jobs.add_job(f"test/{how}").job.number for how in ("stops", "refuses")]
            stops.await_begin()
            refuses.await_begin()
        for number in numbers:  # a slow database may have the last word after the stop
            job = until(other, number, JobState.QUEUED)
            assert (job.attempts, job.retry) == (0, True)
            assert [one.outcome for one in job.past_attempts] == ["RELEASED"]
        with psycopg.connect(database_url, autocommit=True) as connection:
            lease = "SELECT FROM jobs.worker WHERE instance = %s"
            instance = (stops.jobs[0].instance,)
            eventually(
                lambda: connection.execute(lease, instance).fetchall() == [],
                timeout=FAST.lease_s / 2,
                what="its lease is given back",
            )
        refuses.go_on.set()
        with hosted(database_url, {"test/**": lambda job: Outcome.OK}):
            for number in numbers:
                assert until(other, number, JobState.SUCCEEDED).retry


def test_what_ends_well_while_its_process_stops_is_done(database_url: str) -> None:
    waits = Waits(Outcome.OK)
    with hosted(database_url, {}) as other:
        with hosted(database_url, {"test/**": waits}, queues=[QUEUE], stop_s=120.0) as host:
            number = host.jobs.add_job("test/a").job.number
            waits.await_begin()
        assert other.jobs.get(number).state is JobState.SUCCEEDED


def test_a_removed_job_is_lost_to_who_works_on_it(database_url: str) -> None:
    waits = Waits(Outcome.OK)
    with hosted(database_url, {"test/**": waits}, queues=[QUEUE]) as host:
        number = host.jobs.add_job("test/a").job.number
        waits.await_begin()
        host.jobs.remove(number, even_active=True)
        eventually(lambda: not host.worker._running_jobs.slots.taken(), what="it was notified")
        assert waits.contexts[0].stop_requested
        assert host.jobs.get(number).state is JobState.DROPPED


def test_a_database_that_is_away_ends_no_worker(
    database_url: str, postgres: EmbeddedPostgres
) -> None:
    waits = Waits(Outcome.OK, stops=False)
    with hosted(database_url, {"test/**": waits}, queues=[QUEUE]) as host:
        number = host.jobs.add_job("test/a").job.number
        waits.await_begin()
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            name = make_url(database_url).database
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            end_sessions(connection, database=name)
            waits.go_on.set()
            eventually(lambda: host.worker._failures > 0, what="it has noticed")
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        done = until(host, number, JobState.SUCCEEDED)
        assert done.attempts == 1
        assert until(host, host.jobs.add_job("test/a").job.number, JobState.SUCCEEDED)


def waiting(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the worker waits for the queues, to read them or to claim from them.

    So may who looks for lost jobs, and who counts.
    """
    connection.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees one moment of others
    return bool(
        connection.execute(
            "SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted "
            "AND l.relation = 'jobs.queue'::regclass AND a.datname = current_database() "
            "AND (a.query LIKE '%max_parallel%' OR a.query LIKE '%CROSS JOIN LATERAL%')"
        ).rowcount
    )


def test_what_was_claimed_without_an_answer_is_given_back(database_url: str) -> None:
    """The commit of a claim may go unanswered: then nobody works on the job."""
    seen: list[Job] = []

    def consume(job: Job, context: JobContext) -> Outcome:
        seen.append(job)
        return Outcome.OK

    with hosted(database_url, {"test/**": consume}, queues=[QUEUE]) as host:
        until(host, host.jobs.add_job("test/a").job.number, JobState.SUCCEEDED)
        host.jobs.suspend_queue("quick")
        number = host.jobs.add_job("test/a").job.number
        with psycopg.connect(database_url) as connection:
            connection.execute("LOCK TABLE jobs.queue")
            host.worker.hint()
            eventually(lambda: waiting(connection), what="the worker is in a transaction")
            connection.execute(
                "UPDATE jobs.job SET state = 'ACTIVE', epoch = epoch + 1, attempts = 1, "
                "started_at = clock_timestamp(), instance = w.instance, runtime_id = w.runtime_id "
                "FROM jobs.worker w WHERE number = %s",
                (number,),
            )
            end_sessions(connection)
        until(host, number, JobState.QUEUED)
        host.jobs.resume_queue("quick")
        assert until(host, number, JobState.SUCCEEDED).attempts == 1
    assert [job.number for job in seen].count(number) == 1


def test_an_attempt_is_lost_once_its_lease_may_be_over(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits(Outcome.OK)
    short = replace(FAST, lease_s=8.0, renewal_s=1.0)
    with (
        hosted(database_url, {"test/**": waits}, queues=[QUEUE], settings=short) as host,
        hosted(database_url, {}) as other,
    ):
        number = host.jobs.add_job("test/a").job.number
        waits.await_begin()
        host.worker.heartbeat.stop(60)  # as if its thread, or the network, had stalled
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "UPDATE jobs.worker SET lease_until = '-infinity' WHERE instance = %s",
                (waits.jobs[0].instance,),
            )
        eventually(lambda: waits.contexts[0].stop_requested, what="it was notified")
        job = until(other, number, JobState.QUEUED)
        assert [one.outcome for one in job.past_attempts] == ["LOST"]
        told = (
            f"job {number} of test/a was taken from {waits.jobs[0].instance}, whose lease was over"
        )
        eventually(lambda: told in caplog.messages, what="who takes it says so")
        with hosted(database_url, {"test/**": lambda job: Outcome.OK}):
            assert until(other, number, JobState.SUCCEEDED).attempts == 2


def test_an_end_whose_commit_goes_unanswered_is_no_lost_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent is looked up, and neither done again nor reported as failed."""
    handles: list[JobHandle] = []
    seen: list[int] = []

    def consume(job: Job, context: JobContext) -> Outcome:
        seen.append(job.number)
        handles.append(context.handle())
        return Outcome.ASYNC

    with hosted(database_url, {"test/**": consume}, queues=[QUEUE]) as host:
        first = host.jobs.add_job("test/a").job.number
        eventually(lambda: len(handles) == 1, what="the first has begun")
        write, cuts = host.worker._write, list[int]()

        def cut_off(written: Any, now: float, *, claims: bool) -> None:
            write(written, now, claims=claims)
            if (written.ends or written.claimed) and len(cuts) < 2:
                cuts.append(len(written.ends))
                raise psycopg.OperationalError("the server closed the connection")

        monkeypatch.setattr(host.worker, "_write", cut_off)
        handles[0].finish(Outcome.OK)
        assert host.jobs.get(first).state is JobState.SUCCEEDED
        second = host.jobs.add_job("test/a").job.number
        eventually(lambda: len(handles) == 2, what="the second has begun")
        handles[1].finish(Outcome.OK)
        done = until(host, second, JobState.SUCCEEDED)
    assert (done.attempts, seen, len(cuts)) == (1, [first, second], 2)
    assert 1 in cuts
