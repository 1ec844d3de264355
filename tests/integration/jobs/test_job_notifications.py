"""What becomes of jobs is reported on every instance, as events of the transactions that did it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.event import Event
from packhorse.jobs.host import JobsHost, open_jobs
from packhorse.jobs.job import Job
from packhorse.runtime.lifecycle import Lifecycle
from tests.harness.waiting import eventually


class Reported:
    """The notifications of one job that one instance heard."""

    def __init__(self, host: JobsHost) -> None:
        self.host, self.events = host, list[Event]()
        host.events.subscribe("packhorse/job/*", self.events.append)

    def of(self, number: int) -> list[str]:
        mine = [event for event in list(self.events) if event.properties["number"] == number]
        return [event.topic.removeprefix("packhorse/job/") for event in mine]

    def until(self, number: int, *kinds: str) -> None:
        eventually(lambda: self.of(number) == [*kinds], what=f"{kinds} of {number}")


@contextmanager
def _running(host: JobsHost) -> Iterator[Reported]:
    reported = Reported(host)
    with Lifecycle([host]):
        yield reported


def _consume(job: Job, _: JobContext) -> Result | Outcome:
    if job.properties.get("end") == "cancel":
        return Result(Outcome.CANCEL, "no use")
    return Outcome.OK


@pytest.fixture
def hosts(database_url: str) -> Iterator[tuple[Reported, Reported]]:
    """One that works, and one that only looks on."""
    consumers = Consumers()
    consumers.add("t/x", _consume)
    with ExitStack() as stack:
        works = stack.enter_context(_running(open_jobs(database_url, None, consumers=consumers)))
        looks = stack.enter_context(_running(open_jobs(database_url, None, consumers=Consumers())))
        eventually(lambda: _hear_each_other(works, looks), what="both hear what is new")
        yield works, looks


def _hear_each_other(works: Reported, looks: Reported) -> bool:
    """A new instance hears of what comes after its start: let both be there."""
    works.host.jobs.add_job("t/x")
    return bool(works.events and looks.events)


def test_every_instance_is_notified_in_order(hosts: tuple[Reported, Reported]) -> None:
    works, looks = hosts
    done = works.host.jobs.add_job("t/x").job.number
    cancelled = looks.host.jobs.add_job("t/x", {"end": "cancel"}).job.number
    for reported in hosts:
        reported.until(done, "ADDED", "START", "FINISHED")
        reported.until(cancelled, "ADDED", "START", "CANCELLED")
    end = next(event for event in works.events if event.topic.endswith("CANCELLED"))
    assert end.is_local, "the instance that did it hears it as its own"
    assert end.properties["reason"] == "no use"
    assert end.properties["state"] == "ERROR"
    same = next(event for event in looks.events if event.topic.endswith("CANCELLED"))
    assert not same.is_local


def test_what_rolls_back_is_not_reported(
    hosts: tuple[Reported, Reported], database_url: str
) -> None:
    works = hosts[0]
    with psycopg.connect(database_url) as connection:
        number = works.host.jobs.add_job("t/x", connection=connection).job.number
        connection.rollback()
    after = works.host.jobs.add_job("t/x").job.number
    for reported in hosts:
        reported.until(after, "ADDED", "START", "FINISHED")
        assert reported.of(number) == []
