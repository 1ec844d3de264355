"""The turn of outcomes, which prefers the holder of the leader task."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.connect import open_pool
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from tests.harness.clock import ManualClock
from tests.harness.outcome_replica import Replica
from tests.harness.waiting import eventually


@pytest.fixture
def pool(database_url: str) -> Iterator[ConnectionPool[Connection]]:
    with closing(open_pool(database_url, "leader-tasks-test", size=8)) as pool:
        yield pool


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
