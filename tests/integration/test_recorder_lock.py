"""The recorder lock, which prefers the holder of the leader task."""

from collections.abc import Iterator

import pytest

from packhorse.db.pool import Lender
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from tests.harness.borrowing import pooled
from tests.harness.clock import ManualClock
from tests.harness.outcome_replica import Replica
from tests.harness.waiting import eventually


@pytest.fixture
def pool(database_url: str) -> Iterator[Lender]:
    with pooled(database_url, "leader-tasks-test", 8) as pool:
        yield pool


class Preferred:
    """Which other replica is to hold the lock, by the topology."""

    def __init__(self) -> None:
        self.replica = ""

    def __call__(self) -> str:
        return self.replica


@pytest.fixture
def replicas(database_url: str, pool: Lender) -> Iterator[tuple[Replica, Preferred, Replica]]:
    """One that asks which replica is preferred, and another."""
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


def holds_lock(replica: Replica) -> bool:
    return replica.outcome_loop.try_round() == 0


def acquires_lock(replica: Replica) -> bool:
    """Wait until it does; a session that is closed ends a little later."""
    return eventually(lambda: holds_lock(replica))


def test_the_recorder_lock_is_released_for_the_holder_of_the_leader_task(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, preferred, other = replicas
    assert holds_lock(one)
    assert not holds_lock(other)
    preferred.replica = "other"
    assert not holds_lock(one), "it releases the lock after a round"
    assert acquires_lock(other)
    assert not holds_lock(one)


def test_a_holder_of_the_leader_task_that_cannot_keep_outcomes_is_replaced_for_good(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, preferred, other = replicas
    assert holds_lock(one)
    preferred.replica = "other"
    assert not holds_lock(one)
    assert acquires_lock(other)
    other.die()
    assert acquires_lock(one)
    assert all(holds_lock(one) for _ in range(5)), "it does not release it again and again"
    preferred.replica = ""
    assert holds_lock(one)
    preferred.replica = "another"
    assert not holds_lock(one), "whoever comes next gets a try"
