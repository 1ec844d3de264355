"""Leader-only work of the product: the cleanup is a duty, the notifier prefers its holder."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.connect import open_pool
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.topology.leader import LeaderOnly
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.lease.succession import LeaseSuccession
from packhorse.topology.open import TopologySettings
from packhorse.topology.own_cluster import Announced, OwnCluster, join
from packhorse.wire.topics import Topics
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.report import RunState
from packhorse_services.cleanup.runner import DUTY, Runner
from packhorse_services.cleanup.schedule import Schedule
from packhorse_services.cleanup.turn import CleanupBusy, TurnLost, take_turn
from tests.harness.cleanup import Stage, staged
from tests.harness.clock import ManualClock
from tests.harness.outcome_replica import Replica
from tests.harness.waiting import eventually

CLEANER = Announced("cleanup", duties=(DUTY,))


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


@pytest.fixture
def pool(database_url: str) -> Iterator[ConnectionPool[Connection]]:
    with closing(open_pool(database_url, "duties-test", size=8)) as pool:
        yield pool


@contextmanager
def taking_part(url: str, name: str, announced: Announced = CLEANER) -> Iterator[OwnCluster]:
    """Take part until the block ends."""
    times = TopologySettings(instance_id=name, interval_s=0.2, timeout_s=3, min_event_delay_s=0)
    cluster = join(url, times, announced)
    cluster.start()
    try:
        eventually(lambda: cluster.holder(announced.duties[0]), what=f"{name} has a view")
        yield cluster
    finally:
        cluster.stop(10)


def cleaner(stage: Stage, pool: ConnectionPool[Connection], cluster: OwnCluster) -> Runner:
    duty = cluster.duty(DUTY, pool.connection)
    return Runner(stage.url, pool, stage.sweep(), Schedule(12 * 3600), duty)


def test_r21_the_cleanup_runs_on_the_holder_of_the_duty_only(
    stage: Stage, pool: ConnectionPool[Connection]
) -> None:
    with taking_part(stage.url, "first") as first, taking_part(stage.url, "second") as second:
        holder = eventually(lambda: second.holder(DUTY))
        assert (holder.id, holder.is_local) == ("first", False)
        cleaner(stage, pool, second).run_if_due()
        assert not ledger.recent(stage.database, 10), "it is not the second one's"
        cleaner(stage, pool, first).run_if_due()
        assert [run.state for run in ledger.recent(stage.database, 10)] == [RunState.SUCCEEDED]

        ledger.request(stage.database, "tests", dry_run=True)
        changed = threading.Event()
        second.on_change(changed.set)
        first.stop(10)
        eventually(lambda: second.holder(DUTY).is_local)  # type: ignore[union-attr]
        assert changed.wait(30)
        cleaner(stage, pool, second).run_if_due()
        assert len(ledger.recent(stage.database, 10)) == 2, "the next one goes on at once"


def test_c2_a_paused_cleaner_loses_its_session_with_its_lease(
    stage: Stage, pool: ConnectionPool[Connection]
) -> None:
    store = SqlLeaseStore(stage.url)
    paused = LeaseMember(store, "paused", interval_s=0.2, lease_s=3)
    properties = {name: value for name, value in CLEANER.properties().items() if value}
    eventually(lambda: paused.beat(properties).view)
    succession = LeaseSuccession(paused.instance_id, paused.runtime_id)
    token = LeaderOnly(DUTY, succession, pool.connection).take()
    assert token is not None
    store.close()  # it says nothing more, and its work's session stays open
    with take_turn(stage.url, token) as turn:
        turn.check()
        with taking_part(stage.url, "other") as other:
            runner = cleaner(stage, pool, other)

            def takes_over() -> bool:
                runner.run_if_due()
                return bool(ledger.recent(stage.database, 10))

            eventually(takes_over, what="the session lock is free long before its own limit")
            with pytest.raises((psycopg.OperationalError, TurnLost)):
                turn.check()


def test_c2_a_token_that_was_taken_over_ends_the_run(
    stage: Stage, pool: ConnectionPool[Connection]
) -> None:
    with taking_part(stage.url, "first") as first:
        token = first.duty(DUTY, pool.connection).take()
    assert token is not None, "and then it has left"
    with take_turn(stage.url, token) as turn, pytest.raises(TurnLost, match="has the duty"):
        turn.check()


def test_by_hand_needs_no_topology_and_waits_for_nobodys_duty(stage: Stage) -> None:
    with taking_part(stage.url, "first"):
        assert stage.run().state is RunState.SUCCEEDED
        with take_turn(stage.url), pytest.raises(CleanupBusy):
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
    """One that is told where the turn is preferred, and another."""
    journal = open_journal("memory://duties", client_name="tests")
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
    return replica.keeper.try_round() == 0


def gets_turn(replica: Replica) -> bool:
    """Wait until it does; a session that is closed ends a little later."""
    return eventually(lambda: has_turn(replica))


def test_the_turn_of_outcomes_is_left_to_the_holder_of_the_duty(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, preferred, other = replicas
    assert has_turn(one)
    assert not has_turn(other)
    preferred.elsewhere = "other"
    assert not has_turn(one), "it leaves the turn after a round"
    assert gets_turn(other)
    assert not has_turn(one)


def test_a_holder_of_the_duty_that_cannot_keep_outcomes_is_replaced_for_good(
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
