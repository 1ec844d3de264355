"""A consumer's transaction that holds its own attempt holds up nobody else's job."""

import threading
from contextlib import closing

import psycopg

from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from tests.harness.jobs.hosted import hosted, until

ONE_BY_ONE = QueueConfiguration("one", ("one/**",), type=QueueType.UNORDERED, max_parallel=1)


def test_an_end_that_its_own_consumer_holds_up_waits_alone(database_url: str) -> None:
    """It keeps its place meanwhile, and the jobs of other queues are begun and end."""
    begun, done, go_on = threading.Event(), list[int](), threading.Event()

    def consume(job: Job, context: JobContext) -> Outcome:
        if "holds" in job.properties:
            context.check(connection)
            begun.set()
            assert go_on.wait(300)
        done.append(job.number)
        return Outcome.OK

    with (
        closing(psycopg.connect(database_url)) as connection,
        hosted(database_url, {"**": consume}, queues=[ONE_BY_ONE]) as host,
    ):
        held = host.jobs.add_job("one/a", {"holds": True}).job.number
        assert begun.wait(300)
        following = host.jobs.add_job("one/a").job.number
        go_on.set()
        for _ in range(3):
            until(host, host.jobs.add_job("other/a").job.number, JobState.SUCCEEDED)
        assert host.jobs.get(held).state is JobState.ACTIVE
        assert following not in done, "the place is taken"
        connection.rollback()
        until(host, held, JobState.SUCCEEDED)
        until(host, following, JobState.SUCCEEDED)
