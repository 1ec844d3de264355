"""What the metrics report about jobs: attempts that end here, and what waits in the cluster."""

from contextlib import suppress
from datetime import timedelta

import psycopg
from prometheus_client import REGISTRY

from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.ledger.gauges import Gauges
from packhorse.jobs.queue import QueueConfiguration
from tests.harness.jobs.hosted import hosted, until
from tests.harness.jobs.stored import jobs_of
from tests.harness.waiting import eventually


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"packhorse_jobs_{name}", labels)


def consume(job: Job, context: JobContext) -> Outcome:
    if job.topic == "metrics/completed":
        with context.completion():
            pass
    if job.topic == "metrics/rolled-back":
        with suppress(psycopg.errors.UniqueViolation), context.completion() as connection:
            connection.execute(
                "CREATE TEMP TABLE once (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
            )
            connection.execute("INSERT INTO once VALUES (1), (1)")
        return Outcome.CANCEL
    return Outcome.CANCEL if job.topic == "metrics/bad" else Outcome.OK


def test_ends_are_counted_by_queue_and_state(database_url: str) -> None:
    queue = QueueConfiguration("counted", ("metrics/**",))
    with hosted(database_url, {"metrics/**": consume}, queues=[queue]) as host:
        for topic, state in {
            "metrics/good": JobState.SUCCEEDED,
            "metrics/completed": JobState.SUCCEEDED,
            "metrics/rolled-back": JobState.ERROR,
            "metrics/bad": JobState.ERROR,
        }.items():
            until(host, host.jobs.add_job(topic).job.number, state)
        eventually(lambda: value("active", queue="counted") == 0, what="all are back")
        assert value("ended_total", queue="counted", state="SUCCEEDED") == 2
        assert value("ended_total", queue="counted", state="ERROR") == 2
        assert value("seconds_count", queue="counted") == 4
        assert value("waited_seconds_count", queue="counted") == 4
        assert value("lease") == 1
    assert value("lease") == 0


def test_what_waits_is_counted_until_its_queue_is_gone(database_url: str) -> None:
    jobs = jobs_of(database_url)
    jobs.put_queue(QueueConfiguration("waiting", ("metrics/**",)))
    for _ in range(3):
        jobs.add_job("metrics/a")
    jobs.add_job("metrics/a", delay=timedelta(hours=1))
    gauges = Gauges(lambda: psycopg.connect(database_url))
    gauges.count()
    assert value("unfinished", queue="waiting", state="QUEUED") == 4
    assert value("unfinished", queue="waiting", state="ACTIVE") == 0
    jobs.remove_queue("waiting")
    gauges.count()
    assert value("unfinished", queue="waiting", state="QUEUED") is None
    assert value("unfinished", queue="main", state="QUEUED") == 4
