"""The recorder lock, which prefers the holder of the leader task."""

from collections.abc import Iterator

import pytest

from packhorse.db.pool import Lender
from packhorse.errors import PackhorseError
from packhorse.messaging.api import JournalUnavailable, RecordTooLarge, TopicMissing
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


class ScriptedEvents:
    """Publishes events as it is told, round after round; at its end there are none."""

    def __init__(self, *script: Exception | None) -> None:
        self.script = list(script)

    def publish(self, *_: object) -> bool:
        if self.script and (failure := self.script.pop(0)) is not None:
            raise failure
        return False

    def forget(self) -> None:
        """Nothing is known."""


def rounds(replica: Replica, *script: Exception | None) -> list[bool]:
    """Do a round for each of these, and return after which the replica holds the lock."""
    replica.outcome_loop._event_publisher = ScriptedEvents(*script)  # type: ignore[assignment]
    held = []
    for _ in script:
        held.append(holds_lock(replica))
        replica.clock.advance(5)
    return held


def test_a_replica_whose_events_fail_twice_in_a_row_releases_the_lock(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, away = replicas[0], JournalUnavailable("away")
    assert rounds(one, away, None, away, away) == [True, True, True, False]
    assert eventually(lambda: rounds(one, away) == [True]), "it is counted anew"


def test_events_that_fail_are_tried_again_after_a_pause(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one, events = replicas[0], ScriptedEvents(JournalUnavailable("away"), None)
    one.outcome_loop._event_publisher = events  # type: ignore[assignment]
    for left in (1, 1):
        assert holds_lock(one)
        assert len(events.script) == left
    one.clock.advance(5)
    assert holds_lock(one)
    assert events.script == []


@pytest.mark.parametrize("obstacle", [TopicMissing("events"), RecordTooLarge("an event")])
def test_what_only_an_operator_can_mend_is_told_by_whoever_holds_the_lock(
    replicas: tuple[Replica, Preferred, Replica], obstacle: PackhorseError
) -> None:
    one, preferred, other = replicas
    assert rounds(one, obstacle, obstacle, obstacle) == [True] * 3, "no other could do it"
    preferred.replica = "other"
    assert rounds(one, obstacle) == [False]
    with pytest.raises(type(obstacle)):
        one.outcome_loop.check_events()
    assert acquires_lock(other)
    assert not holds_lock(one)
    one.outcome_loop.check_events()


def test_an_obstacle_is_forgotten_when_the_journal_is_away(
    replicas: tuple[Replica, Preferred, Replica],
) -> None:
    one = replicas[0]
    assert rounds(one, TopicMissing("events"), JournalUnavailable("away")) == [True, True]
    one.outcome_loop.check_events()
