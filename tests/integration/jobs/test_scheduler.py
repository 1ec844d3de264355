"""The scheduler in programs: hints, a database that cuts it off, the leader's jobs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

import psycopg
import pytest

from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.consumers import Consumers, live_handled_topics
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import LEADER_TASKS, open_jobs
from packhorse.jobs.job import Job
from packhorse.jobs.scheduling.definition import RunOn
from packhorse.jobs.scheduling.errors import InvalidSchedule
from packhorse.jobs.scheduling.timing import At, Every
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from tests.harness.borrowing import borrowed
from tests.harness.jobs.schedules import Schedules, definition
from tests.harness.postgres import end_sessions
from tests.harness.waiting import eventually

SECOND = timedelta(seconds=1)


@pytest.fixture
def site(database_url: str) -> Schedules:
    return Schedules(database_url)


@contextmanager
def programs(site: Schedules, *names: str) -> Iterator[list[str]]:
    """Run programs that do jobs of `test/job`; gives the list of who did each."""
    done: list[str] = []
    clusters: list[OwnCluster] = []
    with ExitStack() as stack:
        for name in names:
            times = TopologyConfiguration(
                instance_id=name,
                topology_interval_s=0.2,
                topology_timeout_s=60,
                min_event_delay_s=0,
            )
            cluster = join(site.url, times, InstanceProperties("tests", leader_tasks=LEADER_TASKS))
            consumers = Consumers()
            consumers.add("test/job", doing(done, name))
            stack.enter_context(Lifecycle([cluster]))
            eventually(lambda one=cluster: one.holder(LEADER_TASKS[0]), what=f"{name} has a view")
            host = open_jobs(
                site.url,
                cluster,
                consumers=consumers,
                declared=Declared(schedules=[definition("declared")]),
            )
            stack.enter_context(Lifecycle([host]))
            clusters.append(cluster)
        for cluster in clusters:
            eventually(
                lambda one=cluster: who_does_jobs(one) == set(names),
                what="all see what all do",
            )
        yield done


def who_does_jobs(cluster: OwnCluster) -> set[str]:
    """Return whom an instance sees doing jobs of `test/job`; they announce it after they join."""
    live = live_handled_topics(cluster.discovery)
    assert live is not None
    return {name for name, topics in live.items() if topics.covers("test/job")}


def doing(done: list[str], name: str) -> Callable[[Job, JobContext], Outcome]:
    def act(job: Job, _context: JobContext) -> Outcome:
        done.append(name)
        return Outcome.OK

    return act


def created_in_a_second(site: Schedules, name: str) -> datetime | None:
    """Create a schedule and return its moment; None where that was over before."""
    with psycopg.connect(site.url) as connection:
        [(now,)] = connection.execute("SELECT clock_timestamp()").fetchall()
    try:
        site.create(name, At(now + SECOND))
    except InvalidSchedule:
        return None
    moment: datetime = now + SECOND
    return moment


def test_a_new_schedule_is_heard_of_and_fires_at_its_time(site: Schedules) -> None:
    with programs(site, "one") as done:
        eventually(lambda: "declared" in site.names(), what="programs declare theirs")
        moment = eventually(lambda: created_in_a_second(site, "once"), what="soon enough")
        eventually(lambda: done == ["one"])
    [fire_time] = site.fire_times("once")
    assert fire_time.fire_time == moment
    assert fire_time.decided_at >= moment, "never before its time"


def test_the_jobs_of_the_leader_are_done_by_the_leader_alone(site: Schedules) -> None:
    with programs(site, "first", "second") as done:
        site.create("leader", Every(SECOND), run_on=RunOn.LEADER)
        eventually(lambda: len(done) >= 3)
        assert set(done) == {"first"}
        assert {one.instance for one in site.fire_times("leader")} == {"first"}


def test_all_instances_do_what_is_for_all(site: Schedules) -> None:
    with programs(site, "first", "second") as done:
        site.create("all", Every(SECOND), run_on=RunOn.ALL, times=2)
        eventually(lambda: len(done) >= 4 and site.stored("all").next_fire_time is None)
        fired = [len(one.jobs) for one in site.fire_times("all")]
    assert fired == [2, 2]
    assert sorted(done) == ["first", "first", "second", "second"]


def test_a_database_that_cuts_it_off_holds_it_up_for_seconds_only(site: Schedules) -> None:
    with programs(site, "one") as done:
        site.create("often", Every(SECOND))
        eventually(lambda: done)
        with borrowed(site.url) as connection:
            end_sessions(connection)
        before = len(done)
        eventually(lambda: len(done) > before + 1)
    fire_times = site.fire_times("often")
    assert len({one.fire_time for one in fire_times}) == len(fire_times)
