"""R9, R18: outcomes and events equal a model, whatever repeats, crashes and restarts there are."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from psycopg_pool import ConnectionPool

from packhorse.messaging.api import Journal
from packhorse.messaging.memory import shared_log
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from packhorse.messaging.topics import standard_topics
from packhorse.wire.codec import encode_status
from packhorse.wire.messages import Action, Status
from packhorse.wire.topics import Topics
from tests.harness.clock import ManualClock
from tests.harness.crash import Crash
from tests.harness.depth import at_depth, examples
from tests.harness.journals import KafkaBackend, SqlBackend, everything, fresh_name
from tests.harness.kafka.broker import RunningKafka
from tests.harness.machines import play
from tests.harness.outcome_replica import Replica
from tests.harness.waiting import eventually
from tests.integration.outcome_subscriptions import DECISIONS, NAMES, SubscriptionsMachine

KINDS = {
    Status.REMOVED: "removed",
    Status.REMOVED_FAILED: "failed",
    Status.SKIPPED: "skipped",
    Status.DUPLICATE: "skipped",
}


class OutcomesMachine(SubscriptionsMachine):
    """The table, the cursors and the event topic against a list of what was decided.

    Replicas that keep outcomes die and lose topics.
    """

    database_url: str

    def open(self) -> Journal:
        """Return a journal with no topics of `self.topics`."""
        raise NotImplementedError

    def remove_topic(self, topic: str) -> None:
        """Remove a topic as an operator would."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.topics = Topics.named(fresh_name(), {})
        self.journal = self.open()
        self.journal.create_topics(standard_topics(self.topics, partitions=2))
        self.clock = ManualClock()
        self.pool = ConnectionPool(self.database_url, min_size=0, max_size=2, open=True)
        self.rows(
            "TRUNCATE bookkeeping.outcome, bookkeeping.topic_cursor, bookkeeping.known_subscriber, "
            "bookkeeping.deduplication_snapshot, bookkeeping.command"
        )
        self.begin_subscriptions()
        self.oldest = 0
        self.replicas = [self.new_replica(), self.new_replica()]

    def new_replica(self) -> Replica:
        replica = Replica(self.database_url, self.journal, self.topics, self.pool, self.clock)
        for record in self.announced.values():
            replica.subscribers.note(record, True)
        return replica

    @rule(index=st.sampled_from([0, 1]))
    def tail(self, index: int) -> None:
        self.replicas[index].tail()

    @rule(index=st.sampled_from([0, 1]))
    def round(self, index: int) -> None:
        self.replicas[index].outcome_loop.round()

    @rule(index=st.sampled_from([0, 1]), steps=st.integers(0, 100), statuses=DECISIONS)
    def crash(self, index: int, steps: int, statuses: list[Status]) -> None:
        """Die somewhere on the way of packages that all subscribers are done with."""
        self.distribute_to_all(statuses)
        replica = self.replicas[index]
        replica.arm(steps)
        with suppress(Crash):
            replica.outcome_loop.round()
        replica.die()
        self.replicas[index] = self.new_replica()

    @rule()
    def statuses_forgotten(self) -> None:
        """Retention passes by what is recorded."""
        rows = self.rows(
            "SELECT log_offset, journal_id FROM bookkeeping.topic_cursor WHERE topic = %s",
            self.topics.status,
        )
        if rows and rows[0][1] == self.journal.identity(self.topics.status):
            self.journal.truncate(self.topics.status, rows[0][0])

    @rule()
    def status_topic_made_anew(self) -> None:
        """Nothing of it is lost: all was recorded, or is sent again."""
        for index in (0, 1):
            if self.replicas[index].outcome_loop.round():
                self.remove_topic(self.topics.status)
                self.journal.create_topics(standard_topics(self.topics, partitions=2))
                for replica in self.replicas:
                    replica.die()
                self.replicas = [self.new_replica(), self.new_replica()]
                return

    @precondition(lambda self: self.packages)
    @rule(data=st.data())
    def packages_forgotten(self, data: st.DataObject) -> None:
        """Retention passes by packages whose event was, or can't be, published."""
        reported = [event["offset"] for event in self.events()]
        self.oldest = max(self.oldest, max(reported, default=-1) + 1)
        self.journal.truncate(self.topics.package, self.oldest)

    def rows(self, query: str, *parameters: object) -> list[Any]:
        with self.pool.connection() as connection:
            found = connection.execute(query.encode(), parameters)
            return found.fetchall() if found.description else []

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(r.value) for r in everything(self.journal, self.topics.event)]

    @invariant()
    def events_are_right(self) -> None:
        if hasattr(self, "journal"):
            self.check_events()

    def check_events(self) -> None:
        """Each package once, in order, with each subscriber where it belongs."""
        own = [o for o, (_, action) in self.packages.items() if action is Action.ADD]
        events = self.events()
        assert [event["offset"] for event in events] == own[: len(events)]
        for event in events:
            offset = event["offset"]
            assert event["package_id"] == self.packages[offset][0]
            for name in NAMES:
                kinds = [kind for kind in {*KINDS.values(), "imported"} if name in event[kind]]
                if kinds:
                    ever = {
                        KINDS.get(one, "imported") for one in self.subscriptions[name].ever[offset]
                    }
                    assert len(kinds) == 1, (name, event)
                    assert kinds[0] in ever, (name, event)

    @invariant()
    def rows_are_decisions(self) -> None:
        if not hasattr(self, "journal"):
            return
        for name, offset, status in self.stored():
            assert Status(status) in self.subscriptions[name].ever[offset]

    def stored(self) -> Iterator[tuple[str, int, str]]:
        yield from self.rows(
            "SELECT subscriber, log_offset, status FROM bookkeeping.outcome "
            "WHERE status <> 'IMPORTED'"
        )

    def teardown(self) -> None:
        if not hasattr(self, "journal"):
            return
        for name in NAMES:
            self.decide_all(name)
            self.send_all(name)
            self.report(name)
        self.replicas[1].die()
        eventually(
            self.all_is_reported, interval=0.01
        )  # the server takes a moment to free the recorder lock
        self.check_events()
        assert [event["offset"] for event in self.events()] == self.own()
        expected = {
            (name, offset, status.value)
            for name, subscription in self.subscriptions.items()
            for offset, status in subscription.decided.items()
            if status is not Status.IMPORTED
        }
        assert set(self.stored()) == expected
        for subscription in self.subscriptions.values():
            last = {
                one.offset: one for one in sorted(subscription.sent, key=lambda one: one.decided_ms)
            }
            for status in subscription.sent:
                if status != last[status.offset]:  # it comes once more, and was overtaken
                    self.append(self.topics.status, encode_status(status))
        assert self.replicas[0].outcome_loop.round()
        assert set(self.stored()) == expected
        self.replicas[0].die()
        self.pool.close()
        self.journal.close()

    def all_is_reported(self) -> bool:
        return self.replicas[0].outcome_loop.round() and len(self.events()) >= len(self.own())


def test_r18_outcomes_and_events_on_the_journal_in_memory(database_url: str) -> None:
    class Machine(OutcomesMachine):
        def __init__(self) -> None:
            super().__init__()
            self.database_url = database_url

        def open(self) -> Journal:
            return open_journal("memory://outcomes", client_name="tests")

        def remove_topic(self, topic: str) -> None:
            shared_log("outcomes").remove_topic(topic)

    play(Machine, examples(80), steps=40)


def test_r18_outcomes_and_events_on_the_sql_journal(database_url: str) -> None:
    backend = SqlBackend(database_url)

    class Machine(OutcomesMachine):
        def __init__(self) -> None:
            super().__init__()
            self.database_url = database_url

        def open(self) -> Journal:
            return SqlJournal(database_url, "model", SegmentLimits(records=4))

        def remove_topic(self, topic: str) -> None:
            backend.remove_topic(topic)

    play(Machine, at_depth(12, 2), steps=30)


@pytest.mark.kafka
@pytest.mark.depth  # the model is in front of the journal, which SQL and memory play too
def test_r18_outcomes_and_events_on_kafka(database_url: str, kafka: RunningKafka) -> None:
    backend = KafkaBackend(kafka.url)

    class Machine(OutcomesMachine):
        def __init__(self) -> None:
            super().__init__()
            self.database_url = database_url

        def open(self) -> Journal:
            return backend.open()

        def remove_topic(self, topic: str) -> None:
            backend.remove_topic(topic)

    play(Machine, 6, steps=15)
