"""Packages, and subscribers that decide on them and report, by a state machine's will."""

from collections.abc import Set
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from psycopg_pool import ConnectionPool

from packhorse.messaging.api import Journal, Outgoing, Record
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
from packhorse_services.publisher.commands import command_rows as command_store
from tests.harness.clock import ManualClock
from tests.harness.outcome_replica import Replica
from tests.harness.publishing import AGENT

NAMES = ("a", "b", "c")
DECISIONS = st.lists(st.sampled_from([*Status, Status.IMPORTED]), min_size=3, max_size=9)


@dataclass
class Subscription:
    """One subscriber: what it decided, and how much of that it has sent."""

    decided: dict[int, Status] = field(default_factory=dict)
    ever: dict[int, set[Status]] = field(default_factory=dict)
    done: int = -1
    settled: int = -1
    unsent: list[StatusMessage] = field(default_factory=list)
    sent: list[StatusMessage] = field(default_factory=list)


class SubscriptionsMachine(RuleBasedStateMachine):
    """What is published and decided, and what has been sent of that: the part that is the model."""

    journal: Journal
    topics: Topics
    clock: ManualClock
    pool: ConnectionPool
    replicas: list[Replica]

    def begin_subscriptions(self) -> None:
        """Let nothing be published, and nobody have announced itself."""
        self.packages: dict[int, tuple[str, Action | None]] = {}
        self.subscriptions = {name: Subscription() for name in NAMES}
        self.announced: dict[str, Record] = {}
        self.decisions = self.resets = 0
        self.identity = self.journal.identity(self.topics.package)

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
        subscription = self.subscriptions[name]
        following = [offset for offset in self.packages if offset > subscription.done]
        if not following:
            return
        subscription.done = min(following)
        if self.packages[subscription.done][1] is not None:
            self.decide_on(name, subscription.done, status)

    def decide_on(self, name: str, offset: int, status: Status) -> None:
        subscription = self.subscriptions[name]
        self.decisions += 1
        subscription.decided[offset] = status
        subscription.ever.setdefault(offset, set()).add(status)
        subscription.unsent.append(
            StatusMessage(
                *(name, AGENT, self.identity, offset, status, self.packages[offset][0]),
                reason=f"{name} {offset}",
                decided_ms=1_000 + self.decisions,
            )
        )

    @rule(name=st.sampled_from(NAMES), status=st.sampled_from(Status), data=st.data())
    def decide_again(self, name: str, status: Status, data: st.DataObject) -> None:
        """Decide a package once more; the last decision is the one that counts."""
        decided = sorted(self.subscriptions[name].decided)
        if decided:
            self.decide_on(name, data.draw(st.sampled_from(decided)), status)

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def reset_offset(self, name: str, data: st.DataObject) -> None:
        """Move a subscription back: what it decided above the offset counts no more."""
        subscription = self.subscriptions[name]
        decided = sorted(subscription.decided)
        if not decided:
            return
        to = data.draw(st.sampled_from(decided)) - data.draw(st.integers(0, 1))
        self.send_all(name)
        self.resets += 1
        command_id = f"{self.resets:032x}"
        reset = ResetCommand(command_id, name, AGENT, to, journal_id=self.identity)
        with self.pool.connection() as connection:
            command_store.write(connection, reset)
        applied = CommandStatusMessage(command_id, name, AGENT, CommandState.APPLIED)
        for _ in range(data.draw(st.integers(1, 2))):
            self.append(self.topics.status, encode_command_status(applied))
        subscription.done = subscription.settled = to
        subscription.decided = {o: status for o, status in subscription.decided.items() if o <= to}
        self.report(name)

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
            self.report(name)

    @rule(name=st.sampled_from(NAMES))
    def send(self, name: str) -> None:
        self.send_all(name)

    def send_all(self, name: str) -> None:
        subscription = self.subscriptions[name]
        for status in subscription.unsent:
            self.append(self.topics.status, encode_status(status))
        subscription.sent += subscription.unsent
        subscription.unsent.clear()
        subscription.settled = subscription.done

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def send_again(self, name: str, data: st.DataObject) -> None:
        sent = self.subscriptions[name].sent
        if sent:
            status = data.draw(st.sampled_from(sent))
            self.append(self.topics.status, encode_status(status))

    @rule()
    def nonsense(self) -> None:
        self.journal.append(self.topics.status, Outgoing(b"\xff", {})).result()

    @rule(name=st.sampled_from(NAMES))
    def announce(self, name: str) -> None:
        self.report(name)

    def report(self, name: str) -> None:
        subscription = self.subscriptions[name]
        state = SubscriberState(AGENT, subscription.done, settled_offset=subscription.settled)
        encoded = encode_discovery(DiscoveryMessage(name, (state,)))
        record = Record("", 0, 0, self.clock.wall_ms(), name, encoded.headers, encoded.value)
        self.announced[name] = record
        for replica in self.replicas:
            replica.subscribers.note(record, True)

    @rule()
    def silence(self) -> None:
        self.clock.advance(31)
        self.announced.clear()

    def own(self) -> list[int]:
        return [o for o, (_, action) in self.packages.items() if action is Action.ADD]

    def decide_all(self, name: str) -> None:
        while any(offset > self.subscriptions[name].done for offset in self.packages):
            self.decide_next(name, Status.IMPORTED)
