"""Replicas that keep outcomes, and subscribers that decide and tell, by a state machine's will."""

import json
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from psycopg_pool import ConnectionPool

from packhorse.messaging.api import Journal, Outgoing, Record
from packhorse.messaging.topics import standard_topics
from packhorse.wire.codec import encode_discovery, encode_status
from packhorse.wire.command_codec import encode_command_status
from packhorse.wire.messages import (
    Action,
    CommandState,
    CommandStatusMessage,
    DiscoveryMessage,
    PackageEntry,
    PackageMessage,
    ResetCommand,
    Status,
    StatusMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import Encoded
from packhorse.wire.topics import Topics
from packhorse_services.publisher.commands import store as command_store
from tests.harness.clock import ManualClock
from tests.harness.journals import fresh_name
from tests.harness.outcome_replica import Replica
from tests.harness.publishing import AGENT, Crash
from tests.harness.waiting import eventually

NAMES = ("a", "b", "c")
DECISIONS = st.lists(st.sampled_from([*Status, Status.IMPORTED]), min_size=3, max_size=9)
KINDS = {Status.REMOVED: "removed", Status.REMOVED_FAILED: "failed", Status.SKIPPED: "skipped"}


@dataclass
class Lane:
    """One subscriber: what it decided, and how much of that it has sent."""

    decided: dict[int, Status] = field(default_factory=dict)
    ever: dict[int, set[Status]] = field(default_factory=dict)
    done: int = -1
    settled: int = -1
    unsent: list[StatusMessage] = field(default_factory=list)
    sent: list[StatusMessage] = field(default_factory=list)


class OutcomesMachine(RuleBasedStateMachine):
    """The table, the cursors and the event topic against a list of what was decided."""

    database_url: str

    def open(self) -> Journal:
        """Return a journal with no topics of `self.topics`."""
        raise NotImplementedError

    def remove_topic(self, topic: str) -> None:
        """Remove a topic as an operator would."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.topics = Topics.prefixed(fresh_name())
        self.journal = self.open()
        self.journal.create_topics(standard_topics(self.topics, partitions=2))
        self.clock = ManualClock()
        self.pool = ConnectionPool(self.database_url, min_size=0, max_size=2, open=True)
        self.rows(
            "TRUNCATE bookkeeping.outcome, bookkeeping.topic_cursor, bookkeeping.known_subscriber, "
            "bookkeeping.deduplication_snapshot, bookkeeping.command"
        )
        self.packages: dict[int, tuple[str, Action | None]] = {}
        self.lanes = {name: Lane() for name in NAMES}
        self.announced: dict[str, Record] = {}
        self.oldest = self.decisions = self.resets = 0
        self.replicas = [self.new_replica(), self.new_replica()]

    def new_replica(self) -> Replica:
        replica = Replica(self.database_url, self.journal, self.topics, self.pool, self.clock)
        for record in self.announced.values():
            replica.subscribers.note(record, True)
        return replica

    def append(self, topic: str, encoded: Encoded) -> int:
        return self.journal.append(topic, Outgoing(encoded.value, encoded.headers)).result().offset

    @rule(kind=st.sampled_from(["own", "own", "own", "test", "other"]))
    def publish(self, kind: str) -> None:
        self.publish_one(kind)

    def publish_one(self, kind: str) -> None:
        package_id = f"package-{len(self.packages)}"
        action = Action.TEST if kind == "test" else Action.ADD
        agent = "other" if kind == "other" else AGENT
        message = PackageMessage(PackageEntry(package_id, agent, action, (f"/{package_id}",)))
        offset = self.append(self.topics.package, encode_package(message))
        self.packages[offset] = package_id, None if kind == "other" else action

    @rule(name=st.sampled_from(NAMES), status=st.sampled_from([*Status, Status.IMPORTED]))
    def decide(self, name: str, status: Status) -> None:
        self.decide_next(name, status)

    def decide_next(self, name: str, status: Status) -> None:
        lane = self.lanes[name]
        following = [offset for offset in self.packages if offset > lane.done]
        if not following:
            return
        lane.done = min(following)
        if self.packages[lane.done][1] is not None:
            self.decide_on(name, lane.done, status)

    def decide_on(self, name: str, offset: int, status: Status) -> None:
        lane = self.lanes[name]
        self.decisions += 1
        lane.decided[offset] = status
        lane.ever.setdefault(offset, set()).add(status)
        lane.unsent.append(
            StatusMessage(
                *(name, AGENT, offset, status, self.packages[offset][0]),
                reason=f"{name} {offset}",
                decided_ms=1_000 + self.decisions,
            )
        )

    @rule(name=st.sampled_from(NAMES), status=st.sampled_from(Status), data=st.data())
    def decide_again(self, name: str, status: Status, data: st.DataObject) -> None:
        """Decide a package once more; the last decision is the one that counts."""
        decided = sorted(self.lanes[name].decided)
        if decided:
            self.decide_on(name, data.draw(st.sampled_from(decided)), status)

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def reset_offset(self, name: str, data: st.DataObject) -> None:
        """Move a lane back: what it decided above the offset counts no more."""
        lane = self.lanes[name]
        decided = sorted(lane.decided)
        if not decided:
            return
        to = data.draw(st.sampled_from(decided)) - data.draw(st.integers(0, 1))
        self.send_all(name)
        self.resets += 1
        command_id = f"{self.resets:032x}"
        identity = self.journal.identity(self.topics.package)
        reset = ResetCommand(command_id, name, AGENT, to, journal_id=identity)
        with self.pool.connection() as connection:
            command_store.write(connection, reset)
        applied = CommandStatusMessage(command_id, name, AGENT, CommandState.APPLIED)
        for _ in range(data.draw(st.integers(1, 2))):
            self.append(self.topics.status, encode_command_status(applied))
        lane.done = lane.settled = to
        lane.decided = {o: status for o, status in lane.decided.items() if o <= to}
        self.tell(name)

    @rule(statuses=DECISIONS, late=st.sets(st.sampled_from(NAMES)))
    def distribute(self, statuses: list[Status], late: set[str]) -> None:
        self.distribute_to_all(statuses, late)

    def distribute_to_all(self, statuses: list[Status], late: Set[str] = frozenset()) -> None:
        """Publish a package or more, and let all be done with it; some send statuses later."""
        while len(statuses) >= 3:
            self.publish_one("own")
            for name in NAMES:
                self.decide_next(name, statuses.pop())
        for name in NAMES:
            if name not in late:
                self.send_all(name)
            self.tell(name)

    @rule(name=st.sampled_from(NAMES))
    def send(self, name: str) -> None:
        self.send_all(name)

    def send_all(self, name: str) -> None:
        lane = self.lanes[name]
        for status in lane.unsent:
            self.append(self.topics.status, encode_status(status))
        lane.sent += lane.unsent
        lane.unsent.clear()
        lane.settled = lane.done

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def send_again(self, name: str, data: st.DataObject) -> None:
        sent = self.lanes[name].sent
        if sent:
            status = data.draw(st.sampled_from(sent))
            self.append(self.topics.status, encode_status(status))

    @rule()
    def nonsense(self) -> None:
        self.journal.append(self.topics.status, Outgoing(b"\xff", {})).result()

    @rule(name=st.sampled_from(NAMES))
    def announce(self, name: str) -> None:
        self.tell(name)

    def tell(self, name: str) -> None:
        lane = self.lanes[name]
        state = SubscriberState(AGENT, lane.done, settled_offset=lane.settled)
        encoded = encode_discovery(DiscoveryMessage(name, (state,)))
        record = Record("", 0, 0, self.clock.wall_ms(), name, encoded.headers, encoded.value)
        self.announced[name] = record
        for replica in self.replicas:
            replica.subscribers.note(record, True)

    @rule()
    def silence(self) -> None:
        self.clock.advance(31)
        self.announced.clear()

    @rule(index=st.sampled_from([0, 1]))
    def tail(self, index: int) -> None:
        self.replicas[index].tail()

    @rule(index=st.sampled_from([0, 1]))
    def round(self, index: int) -> None:
        self.replicas[index].keeper.round()

    @rule(index=st.sampled_from([0, 1]), steps=st.integers(0, 100), statuses=DECISIONS)
    def crash(self, index: int, steps: int, statuses: list[Status]) -> None:
        """Die somewhere on the way of packages that all subscribers are done with."""
        self.distribute_to_all(statuses)
        replica = self.replicas[index]
        replica.arm(steps)
        with suppress(Crash):
            replica.keeper.round()
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
            if self.replicas[index].keeper.round():
                self.remove_topic(self.topics.status)
                self.journal.create_topics(standard_topics(self.topics, partitions=2))
                for replica in self.replicas:
                    replica.die()
                self.replicas = [self.new_replica(), self.new_replica()]
                return

    @precondition(lambda self: self.packages)
    @rule(data=st.data())
    def packages_forgotten(self, data: st.DataObject) -> None:
        """Retention passes by packages that were told, or that nobody can be told of any more."""
        told = [event["offset"] for event in self.events()]
        self.oldest = max(self.oldest, max(told, default=-1) + 1)
        self.journal.truncate(self.topics.package, self.oldest)

    def rows(self, query: str, *parameters: object) -> list[Any]:
        with self.pool.connection() as connection:
            found = connection.execute(query.encode(), parameters)
            return found.fetchall() if found.description else []

    def events(self) -> list[dict[str, Any]]:
        partition = self.journal.partition_of(self.topics.event, AGENT)
        end = self.journal.bounds(self.topics.event, partition).next
        found: list[dict[str, Any]] = []
        with self.journal.reader(self.topics.event, 0, partition=partition) as reader:
            while reader.position(partition) < end:
                found += [json.loads(record.value) for record in reader.poll(5)]
        return found

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
                kinds = [kind for kind in (*KINDS.values(), "imported") if name in event[kind]]
                if kinds:
                    ever = {KINDS.get(one, "imported") for one in self.lanes[name].ever[offset]}
                    assert len(kinds) == 1, (name, event)
                    assert kinds[0] in ever, (name, event)

    @invariant()
    def rows_are_decisions(self) -> None:
        if not hasattr(self, "journal"):
            return
        for name, offset, status in self.stored():
            assert Status(status) in self.lanes[name].ever[offset]

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
            self.tell(name)
        self.replicas[1].die()
        eventually(self.all_is_told, interval=0.01)  # the server takes a moment to free the turn
        self.check_events()
        assert [event["offset"] for event in self.events()] == self.own()
        expected = {
            (name, offset, status.value)
            for name, lane in self.lanes.items()
            for offset, status in lane.decided.items()
            if status is not Status.IMPORTED
        }
        assert set(self.stored()) == expected
        for lane in self.lanes.values():
            last = {one.offset: one for one in sorted(lane.sent, key=lambda one: one.decided_ms)}
            for status in lane.sent:
                if status != last[status.offset]:  # it comes once more, and was overtaken
                    self.append(self.topics.status, encode_status(status))
        assert self.replicas[0].keeper.round()
        assert set(self.stored()) == expected
        self.replicas[0].die()
        self.pool.close()
        self.journal.close()

    def all_is_told(self) -> bool:
        return self.replicas[0].keeper.round() and len(self.events()) >= len(self.own())

    def own(self) -> list[int]:
        return [o for o, (_, action) in self.packages.items() if action is Action.ADD]

    def decide_all(self, name: str) -> None:
        while any(offset > self.lanes[name].done for offset in self.packages):
            self.decide_next(name, Status.IMPORTED)
