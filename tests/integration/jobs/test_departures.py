"""Jobs that only one instance may do are dropped once that has left for good."""

from datetime import timedelta
from functools import partial

import psycopg
import pytest

from packhorse.jobs.job import JobState
from packhorse.jobs.ledger import departures
from packhorse.jobs.ledger.departures import Departures
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store.given import LEADER, NewJob
from packhorse.jobs.store.queues import LAYOUT_LOCK
from packhorse.topology.view import ClusterView, InstanceDescription, TopologyView
from tests.harness.clock import ManualClock
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import jobs_of


def view_of(*ids: str) -> TopologyView:
    return TopologyView(
        ClusterView(
            "cluster",
            tuple(
                InstanceDescription(one, "cluster", is_leader=n == 0, is_local=n == 0)
                for n, one in enumerate(ids)
            ),
        )
    )


class Watched:
    """Departures whose view and clock the test moves."""

    def __init__(self, url: str) -> None:
        self.view: TopologyView | None = view_of("i1", "i2")
        self.clock = ManualClock()
        self.departures = Departures(
            partial(psycopg.connect, url, options="-c lock_timeout=60s"),
            lambda: self.view,
            patience_s=600,
            clock=self.clock,
        )

    def later(self, seconds: float) -> int:
        self.clock.advance(seconds)
        return self.departures.drop()


def test_what_waits_for_one_who_left_is_dropped(database_url: str) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    gone = [jobs.add_job(topic, only_on="i3").job.number for topic in ("a", "b", "b")]
    kept = [
        jobs.add_job("a", only_on="i2").job.number,
        jobs.add_job("a", only_on=LEADER).job.number,
        jobs.add_job("a").job.number,
    ]
    assert [watched.later(0), watched.later(599), watched.later(1)] == [0, 0, 3]
    for number in gone:
        job = jobs.get(number)
        assert (job.state, job.only_on) == (JobState.DROPPED, "i3")
        assert job.result_message == "meant for an instance that has left"
    assert {jobs.get(number).state for number in kept} == {JobState.QUEUED}
    assert jobs.statistics().all.dropped == 3


def test_a_restart_costs_no_job(database_url: str) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    number = jobs.add_job("a", only_on="i3").job.number
    watched.later(0)
    watched.view = view_of("i1", "i3")
    watched.later(500)
    watched.view = view_of("i1")
    assert [watched.later(200), watched.later(500)] == [0, 0]
    assert jobs.get(number).state is JobState.QUEUED
    assert watched.later(100) == 1


def test_without_a_current_view_nothing_is_dropped(database_url: str) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    jobs.add_job("a", only_on="i3")
    watched.later(0)
    watched.view = None
    assert watched.later(10_000) == 0
    watched.view = view_of("i1", "i3")
    assert watched.later(1) == 0


def test_what_is_not_due_or_under_way_is_left_alone(database_url: str) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    later = jobs.add_job("a", only_on="i3", delay=timedelta(hours=1)).job.number
    active = jobs.add_job("a", only_on="i3").job.number
    [claimed] = HandyWorker(database_url, "i3").claim()
    assert claimed.claim.number == active
    assert [watched.later(0), watched.later(1_000)] == [0, 0]
    assert jobs.get(later).state is JobState.QUEUED
    assert jobs.get(active).state is JobState.ACTIVE


def test_what_became_due_without_a_consumer_is_seen_and_dropped(database_url: str) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    gone = jobs.add_job("a", only_on="i3", delay=timedelta(hours=1)).job.number
    jobs.add_jobs([NewJob("b", delay=timedelta(hours=1)) for _ in range(250)])
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE jobs.job SET ready_at = created_at")
    watched.later(0)
    assert [(one.topic, one.waiting) for one in jobs.unconsumed({})] == [("a", 1), ("b", 250)]
    assert watched.later(600) == 1
    assert jobs.get(gone).state is JobState.DROPPED


def test_what_became_due_is_seen_topic_by_topic_and_beside_a_change_of_queues(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    jobs.add_jobs([NewJob(f"t{n}", delay=timedelta(hours=1)) for n in range(5)])
    monkeypatch.setattr(departures, "_TOPICS", 2)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE jobs.job SET ready_at = created_at")
    renewed: list[int] = []

    def renew() -> None:
        renewed.append(sum(one.waiting for one in jobs.unconsumed({})))

    with psycopg.connect(database_url) as layout:
        layout.execute("SELECT pg_advisory_xact_lock(%s)", (LAYOUT_LOCK,))
        watched.departures.drop(renew)
    assert renewed == [2, 4, 5], "the lease is renewed after each statement"


def test_a_mere_preference_for_one_who_left_ends_by_itself(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, watched = jobs_of(database_url, "i3"), Watched(database_url)
    HandyWorker(database_url, "i3")
    preferring = QueueConfiguration("q", ("q/**",), type=QueueType.UNORDERED, prefer_creator=True)
    jobs.put_queue(preferring)
    number = jobs.add_job("q/1").job.number
    assert [watched.later(0), watched.later(1_000)] == [0, 0]
    assert jobs.get(number).state is JobState.QUEUED
    assert [one for one in caplog.records if one.name == departures.__name__] == []


def test_many_are_dropped_in_batches(database_url: str) -> None:
    jobs, watched = jobs_of(database_url), Watched(database_url)
    jobs.add_jobs([NewJob(f"t/{n % 3}", only_on="i3") for n in range(1_100)])
    watched.later(0)
    assert watched.later(600) == 1_100
    assert jobs.count() == 1_100
