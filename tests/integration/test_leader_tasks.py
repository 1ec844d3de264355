"""Work of one instance at a time: the cleanup loses its turn, the notifier prefers a holder."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.connect import open_pool
from packhorse.jobs.job import JobLost
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.topology.leader import end_session_with
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.open import TopologySettings
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse.wire.topics import Topics
from packhorse_services.cleanup.app import LEADER_TASK
from packhorse_services.cleanup.cleanup_lock import CleanupBusy, CleanupLockLost, acquire_lock
from packhorse_services.cleanup.report import RunState
from tests.harness.cleanup import Stage, staged
from tests.harness.clock import ManualClock
from tests.harness.outcome_replica import Replica
from tests.harness.waiting import eventually

CLEANER = InstanceProperties("cleanup", leader_tasks=(LEADER_TASK,))


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


@pytest.fixture
def pool(database_url: str) -> Iterator[ConnectionPool[Connection]]:
    with closing(open_pool(database_url, "leader-tasks-test", size=8)) as pool:
        yield pool


@contextmanager
def taking_part(
    url: str, name: str, announced: InstanceProperties = CLEANER, *, lease_s: float = 60
) -> Iterator[OwnCluster]:
    """Take part until the block ends."""
    times = TopologySettings(
        instance_id=name, interval_s=0.2, timeout_s=lease_s, min_event_delay_s=0
    )
    cluster = join(url, times, announced)
    cluster.start()
    try:
        eventually(lambda: cluster.holder(announced.leader_tasks[0]), what=f"{name} has a view")
        yield cluster
    finally:
        cluster.stop(120)


@dataclass(frozen=True)
class Fence:
    """As a job's: its session ends with an instance; `lost` says whether another one has it."""

    tied: Callable[[Connection], None]
    lost: bool = False

    def tie(self, connection: Connection) -> None:
        self.tied(connection)

    def check(self, connection: Connection) -> None:
        if self.lost:
            raise JobLost("another attempt has it")


def test_a_paused_cleaner_loses_its_session_with_its_lease(stage: Stage) -> None:
    store = SqlLeaseStore(stage.url)
    paused = LeaseMember(store, "paused", interval_s=0.2, lease_s=3)
    properties = {name: value for name, value in CLEANER.properties().items() if value}
    eventually(lambda: paused.beat(properties).view)
    store.close()  # it says nothing more, and its work's session stays open
    fence = Fence(lambda connection: end_session_with(connection, paused.runtime_id))
    with acquire_lock(stage.url, fence) as turn:
        turn.check()
        with taking_part(stage.url, "other", lease_s=3):

            def takes_over() -> bool:
                try:
                    return stage.run().state is RunState.SUCCEEDED
                except CleanupBusy:
                    return False

            eventually(takes_over, what="the session lock is free long before its own limit")
            with pytest.raises((psycopg.OperationalError, CleanupLockLost)):
                turn.check()


def test_a_job_that_was_taken_over_ends_the_run(stage: Stage) -> None:
    fence = Fence(lambda _: None, lost=True)
    with (
        acquire_lock(stage.url, fence) as turn,
        pytest.raises(CleanupLockLost, match="another instance's"),
    ):
        turn.check()


def test_by_hand_needs_no_topology_and_waits_for_nobodys_leader_task(stage: Stage) -> None:
    with taking_part(stage.url, "first"):
        assert stage.run().state is RunState.SUCCEEDED
        with acquire_lock(stage.url), pytest.raises(CleanupBusy):
            stage.run()


class Preferred:
    """Where the topology wants the turn to be."""

    def __init__(self) -> None:
        self.elsewhere = ""

    def __call__(self) -> str:
        return self.elsewhere


@pytest.fixture
def replicas(
    database_url: str, pool: ConnectionPool[Connection]
) -> Iterator[tuple[Replica, Preferred, Replica]]:
    """One that is asked where the turn is preferred, and another."""
    journal = open_journal("memory://leader-tasks", client_name="tests")
    topics = Topics()
    journal.create_topics(standard_topics(topics))
    clock, preferred = ManualClock(), Preferred()
    one = Replica(database_url, journal, topics, pool, clock, preferred)
    other = Replica(database_url, journal, topics, pool, clock)
    yield one, preferred, other
    one.die()
    other.die()
    journal.close()


def has_turn(replica: Replica) -> bool:
    return replica.outcome_loop.try_round() == 0


def gets_turn(replica: Replica) -> bool:
    """Wait until it does; a session that is closed ends a little later."""
    return eventually(lambda: has_turn(replica))


def test_the_turn_of_outcomes_is_left_to_the_holder_of_the_leader_task(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, preferred, other = replicas
    assert has_turn(one)
    assert not has_turn(other)
    preferred.elsewhere = "other"
    assert not has_turn(one), "it leaves the turn after a round"
    assert gets_turn(other)
    assert not has_turn(one)


def test_a_holder_of_the_leader_task_that_cannot_keep_outcomes_is_replaced_for_good(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, preferred, other = replicas
    assert has_turn(one)
    preferred.elsewhere = "other"
    assert not has_turn(one)
    assert gets_turn(other)
    other.die()
    assert gets_turn(one)
    assert all(has_turn(one) for _ in range(5)), "it does not leave it again and again"
    preferred.elsewhere = ""
    assert has_turn(one)
    preferred.elsewhere = "another"
    assert not has_turn(one), "whoever comes next gets a try"
