"""Workers in a cluster: what they announce, who leads, and topics that nobody does."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from packhorse.jobs.consumer import Consumer, JobContext, Outcome
from packhorse.jobs.consumers import live_handled_topics
from packhorse.jobs.host import LEADER_TASKS, JobsHost
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse.topology.properties import CONSUMERS
from tests.harness.jobs.hosted import hosted, until
from tests.harness.waiting import eventually

ORDERED = QueueConfiguration("in-order", ("steps/**",))


@contextmanager
def member(
    url: str,
    name: str,
    consumers: dict[str, Consumer],
    *queues: QueueConfiguration,
) -> Iterator[tuple[JobsHost, OwnCluster]]:
    settings = TopologyConfiguration(
        instance_id=name, topology_interval_s=0.2, topology_timeout_s=60, min_event_delay_s=0.1
    )
    cluster = join(url, settings, InstanceProperties("tests", leader_tasks=LEADER_TASKS))
    cluster.start()
    try:
        with hosted(url, consumers, queues=queues, cluster=cluster) as host:
            announced = ",".join(sorted(consumers))
            eventually(
                lambda: (announced_by(cluster, name) or "") == announced,
                what="who comes later sees what it does",
            )
            yield host, cluster
    finally:
        cluster.stop(120)


class Records:
    """A consumer that remembers what it has done."""

    def __init__(self) -> None:
        self.done: list[Job] = []
        self._lock = threading.Lock()

    def __call__(self, job: Job, context: JobContext) -> Outcome:
        with self._lock:
            self.done.append(job)
        return Outcome.OK


def announced_by(cluster: OwnCluster, name: str) -> str | None:
    view = eventually(cluster.discovery.current_view, what="a view")
    found = {one.id: one.properties.get(CONSUMERS) for one in view.instances}
    return found.get(name)


def test_an_instance_announces_its_consumers(database_url: str) -> None:
    does: dict[str, Consumer] = {"mail": Records(), "images/**": Records()}
    with member(database_url, "one", {}) as (_, seeing), member(database_url, "two", does):
        eventually(
            lambda: announced_by(seeing, "two") == "images/**,mail", what="others see what it does"
        )
        assert announced_by(seeing, "one") is None


def test_a_job_for_the_leader_is_done_by_the_leader_and_one_for_an_instance_there(
    database_url: str,
) -> None:
    first, second = Records(), Records()
    with member(database_url, "one", {"a/**": first}) as (host, cluster):
        eventually(lambda: cluster.holder(LEADER_TASKS[0]) is not None, what="somebody leads")
        with member(database_url, "two", {"a/**": second}):
            for _ in range(5):
                number = host.jobs.add_job("a/b", only_on="@leader").job.number
                assert until(host, number, JobState.SUCCEEDED).instance == "one"
                number = host.jobs.add_job("a/b", only_on="two").job.number
                assert until(host, number, JobState.SUCCEEDED).instance == "two"
            assert (len(first.done), len(second.done)) == (5, 5)


def test_the_leader_of_a_topic_is_the_first_that_consumes_it(database_url: str) -> None:
    """Also where another instance has the leader task, as an earlier program does."""
    work, other = Records(), Records()
    ordered = QueueConfiguration("in-order", ("ordered/**",))
    with member(database_url, "one", {"a/**": other}, ordered) as (host, cluster):
        eventually(
            lambda: cluster.holder(LEADER_TASKS[0]) is not None, what="somebody has the leader task"
        )
        waiting = host.jobs.add_job("rec/x", only_on="@leader").job.number
        with member(database_url, "two", {"rec/**": work, "ordered/**": work}) as (_, seeing):
            assert until(host, waiting, JobState.SUCCEEDED).instance == "two"
            number = host.jobs.add_job("ordered/x", only_on="@leader").job.number
            assert until(host, number, JobState.SUCCEEDED).instance == "two"
            with member(database_url, "three", {"rec/**": work}):
                eventually(lambda: announced_by(seeing, "three") is not None, what="all see it")
                for _ in range(5):
                    number = host.jobs.add_job("rec/x", only_on="@leader").job.number
                    assert until(host, number, JobState.SUCCEEDED).instance == "two"
            live = eventually(lambda: live_handled_topics(cluster.discovery), what="a view")
            assert host.jobs.unconsumed(live) == ()
        number = host.jobs.add_job("rec/x", only_on="@leader").job.number
        eventually(lambda: announced_by(cluster, "two") is None, what="it has left")
        live = eventually(lambda: live_handled_topics(cluster.discovery), what="a view")
        assert [one.topic for one in host.jobs.unconsumed(live)] == ["rec/x"]
        with member(database_url, "four", {"rec/**": work}):
            assert until(host, number, JobState.SUCCEEDED).instance == "four"
    assert other.done == []


def test_a_topic_that_nobody_does_holds_no_ordered_queue_until_somebody_does(
    database_url: str,
) -> None:
    records, late = Records(), Records()
    with member(database_url, "one", {"steps/a": records}, ORDERED) as (host, _):
        waiting = host.jobs.add_job("steps/b").job.number
        numbers = [host.jobs.add_job("steps/a").job.number for _ in range(5)]
        until(host, numbers[-1], JobState.SUCCEEDED)
        assert host.jobs.get(waiting).state is JobState.QUEUED
        with member(database_url, "two", {"steps/*": late}):
            until(host, waiting, JobState.SUCCEEDED)
    assert [job.number for job in records.done] == numbers


def test_an_ordered_queue_is_in_order_over_instances_and_retries(database_url: str) -> None:
    done: list[int] = []
    lock, at_work = threading.Lock(), []

    def consume(job: Job, context: JobContext) -> Outcome:
        with lock:
            at_work.append(job.number)
            assert len(at_work) == 1, "one at a time"
        try:
            if job.attempts == 1 and job.number % 5 == 0:
                return Outcome.FAILED
            with lock:
                done.append(job.number)
            return Outcome.OK
        finally:
            with lock:
                at_work.remove(job.number)

    queue = QueueConfiguration("in-order", ("steps/**",), retry_delay_s=0.0)
    with (
        member(database_url, "one", {"steps/**": consume}, queue) as (host, _),
        member(database_url, "two", {"steps/**": consume}),
    ):
        numbers = [
            host.jobs.add_job(f"steps/{n % 3}", priority=n % 7).job.number for n in range(40)
        ]
        for number in numbers:
            until(host, number, JobState.SUCCEEDED)
        instances = {host.jobs.get(number).instance for number in numbers}
    assert done == numbers
    assert instances <= {"one", "two"}


def test_a_suspended_queue_begins_nothing_until_it_is_resumed(database_url: str) -> None:
    records = Records()
    queue = QueueConfiguration("quick", ("a/**",), type=QueueType.TOPIC_ROUND_ROBIN)
    with member(database_url, "one", {"a/**": records, "b": records}, queue) as (host, _):
        until(host, host.jobs.add_job("a/b").job.number, JobState.SUCCEEDED)
        host.jobs.suspend_queue("quick")
        number = host.jobs.add_job("a/b").job.number
        until(host, host.jobs.add_job("b").job.number, JobState.SUCCEEDED)
        assert host.jobs.get(number).state is JobState.QUEUED
        host.jobs.resume_queue("quick")
        until(host, number, JobState.SUCCEEDED)
