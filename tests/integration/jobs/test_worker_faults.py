"""What fails beside a worker's jobs costs none of them: writes, notes, its own threads."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store import finishing
from packhorse.jobs.store.finishing import Ended
from packhorse.jobs.store.leases import WorkerRun
from packhorse.jobs.work import worker, worker_store
from packhorse.jobs.work.claiming import Alone, Consumes
from packhorse.jobs.work.worker import JobWorker, WorkerConnections
from tests.harness.jobs.hosted import FAST, hosted, until
from tests.harness.jobs.stored import jobs_of
from tests.harness.jobs.waits import Waits
from tests.harness.waiting import eventually

QUEUE = QueueConfiguration("quick", ("test/**",), type=QueueType.UNORDERED, max_parallel=2)


def ok(job: Job, context: JobContext) -> Outcome:
    return Outcome.OK


def test_an_end_that_can_not_be_stored_keeps_no_other_from_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, refused, may = finishing.finish, list[int](), threading.Event()

    def refuse(connection: Any, ended: Sequence[Ended], **given: Any) -> Any:
        if not may.is_set() and refused[0] in [one.claim.number for one in ended]:
            raise psycopg.OperationalError("not this one")
        return finish(connection, ended, **given)

    monkeypatch.setattr(finishing, "finish", refuse)
    monkeypatch.setattr(worker, "retry_pause_s", lambda _: 0.01)
    waits = Waits(Outcome.OK, stops=False)
    with hosted(database_url, {"test/**": waits}, queues=[QUEUE]) as host:
        numbers = [host.jobs.add_job("test/a").job.number for _ in range(2)]
        refused.append(numbers[0])
        waits.await_begin()
        waits.await_begin()
        waits.go_on.set()
        until(host, numbers[1], JobState.SUCCEEDED)
        assert host.jobs.get(numbers[0]).state is JobState.ACTIVE
        may.set()
        until(host, numbers[0], JobState.SUCCEEDED)
        eventually(lambda: not host.worker._doubt, what="it looks no more often than it has to")


def test_what_was_said_and_not_stored_is_stored_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, failures = worker_store.note, list[int]()

    def fail_once(*given: Any) -> Any:
        if not failures:
            failures.append(1)
            raise psycopg.OperationalError("once")
        return note(*given)

    monkeypatch.setattr(worker_store, "note", fail_once)
    said, go_on = threading.Event(), threading.Event()

    def consume(job: Job, context: JobContext) -> Outcome:
        context.log("began")
        said.set()
        assert go_on.wait(300)
        return Outcome.OK

    with hosted(database_url, {"test/**": consume}, queues=[QUEUE]) as host:
        number = host.jobs.add_job("test/a").job.number
        assert said.wait(300)
        eventually(lambda: host.jobs.get(number).log == ("began",), what="what it has said")
        go_on.set()
        assert until(host, number, JobState.SUCCEEDED).log == ("began",)
    assert failures == [1]


class Dies(Exception):
    """No error of a database."""


@contextmanager
def dying() -> Iterator[psycopg.Connection]:
    raise Dies
    yield


@pytest.mark.parametrize("which", ["lend_for_lease", "lend_for_claims"])
def test_a_thread_that_dies_is_the_failure_of_its_worker(database_url: str, which: str) -> None:
    lend: Callable[[], Any] = lambda: psycopg.connect(database_url)  # noqa: E731
    connections = {"lend": lend, "lend_for_lease": lend, "lend_for_claims": lend, which: dying}
    made = worker_of(connections, Alone())
    made.start()
    eventually(made.failure, what="it is known")
    made.stop(60)
    assert isinstance(made.failure(), Dies)


class Elsewhere(Alone):
    """What other instances consume, as a test says."""

    def __init__(self) -> None:
        self.topics, self.asked = {"test/elsewhere"}, threading.Event()

    def consumes(self) -> Consumes:
        known = set(self.topics)
        self.asked.set()
        return known.__contains__


def test_who_hears_of_a_change_elsewhere_looks_at_once(database_url: str) -> None:
    jobs, elsewhere = jobs_of(database_url), Elsewhere()
    jobs.put_queue(QueueConfiguration("in-order", ("test/**",)))
    jobs.add_job("test/elsewhere")
    number = jobs.add_job("test/a").job.number
    lend: Callable[[], Any] = lambda: psycopg.connect(database_url)  # noqa: E731
    connections = {"lend": lend, "lend_for_lease": lend, "lend_for_claims": lend}
    made = worker_of(connections, elsewhere, poll_s=3600.0)
    made.start()
    try:
        assert elsewhere.asked.wait(300)
        assert jobs.get(number).state is JobState.QUEUED, "another one's job is first"
        elsewhere.topics.clear()
        made.look_around()
        eventually(lambda: jobs.get(number).state is JobState.SUCCEEDED, what="it is done")
    finally:
        made.stop(60)
    assert made.failure() is None


def worker_of(connections: dict[str, Any], known: Alone, *, poll_s: float = 0.1) -> JobWorker:
    consumers = Consumers()
    consumers.add("test/a", ok)
    settings = type(FAST)(lease_s=120.0, poll_s=poll_s, places=4)
    return JobWorker(
        WorkerConnections(**connections), WorkerRun.begin("i1"), consumers, known, settings
    )
