"""Deduplication as a list of what is in the log: the model that Hypothesis compares it with.

The machine decides itself what the journal writes and what it says, so the model knows without
looking what is in the log. It looks after every restart, and at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from packhorse.messaging.api import Journal, NotAppended, Outgoing
from packhorse.messaging.deduplicated import (
    Answer,
    DeduplicatedLog,
    DuplicateUnknown,
    Outcome,
)
from packhorse.messaging.deduplication import (
    DeduplicationSnapshot,
    ProducerExpired,
    ProducerFenced,
    SnapshotStore,
)
from packhorse.messaging.known_log import MemoryLimits
from packhorse.messaging.numbered import Number, Numbered
from tests.harness.crash import Crash
from tests.harness.deduplication import UNKNOWN, BlindJournal, MemorySnapshots, numbers_in
from tests.harness.journals import create

IDLE_MS = 1_000
PRODUCERS = ("a", "b", "c")
_producers = st.sampled_from(PRODUCERS)
_wanted = st.lists(st.tuples(_producers, st.integers(-2, 3)), min_size=1, max_size=5)


class ManualSnapshots(SnapshotStore, Protocol):
    """Snapshots with a clock that the test moves."""

    time_ms: int


@dataclass
class CrashingSnapshots:
    """Snapshots of a process that may die before or after the store has taken one."""

    store: SnapshotStore
    dies: str = ""

    def load(self, name: str) -> DeduplicationSnapshot | None:
        return self.store.load(name)

    def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
        if self.dies != "before":
            self.store.save(name, snapshot)
        if self.dies:
            raise Crash

    def now_ms(self) -> int:
        return self.store.now_ms()


@dataclass(frozen=True)
class Fault:
    """What happens to one append of a batch, and to those behind it."""

    good: int
    """How many are confirmed first."""
    unknown: bool
    written: bool
    away: bool
    """Whether the log can't be read for as long as the batch lasts."""


_faults = st.builds(Fault, st.integers(0, 3), st.booleans(), st.booleans(), st.booleans()).filter(
    lambda fault: fault.unknown or not (fault.written or fault.away)
)


class DeduplicationMachine(RuleBasedStateMachine):
    """Sends numbered messages, loses some and what is said of them, and restarts."""

    def open(self) -> Journal:
        """Return the journal to run on; each backend's test says how."""
        raise NotImplementedError

    def snapshots(self) -> ManualSnapshots:
        """Return where snapshots are kept."""
        return MemorySnapshots()

    def __init__(self) -> None:
        super().__init__()
        self.journal = BlindJournal(self.open())
        self.topic = create(self.journal)
        self.store = self.snapshots()
        self.in_log: list[Number | None] = []
        self.highest = dict.fromkeys(PRODUCERS, -1)
        self.forgotten: set[str] = set()
        self.epochs = {name: number for number, name in enumerate(PRODUCERS, 1)}
        self.log = self.start(self.store)

    def start(self, store: SnapshotStore) -> DeduplicatedLog:
        limits = MemoryLimits(idle_ms=IDLE_MS)
        return DeduplicatedLog(self.journal, self.topic, store, name=self.topic, limits=limits)

    def message(self, producer: str, sequence: int, epoch: int = 0) -> Numbered:
        epoch = epoch or self.epochs[producer]
        return Numbered(producer, epoch, sequence, Outgoing(f"{producer}{sequence}".encode()))

    def new(self, producer: str) -> Numbered:
        self.register(producer)
        return self.message(producer, self.highest[producer] + 1)

    def register(self, producer: str) -> None:
        """Give an epoch to a producer of which the log knows nothing, or nothing any longer."""
        if self.highest[producer] < 0 or producer in self.forgotten:
            self.epochs[producer] = max(self.epochs.values()) + 1

    def wrote(self, message: Numbered) -> Answer:
        """Note that a message is in the log now; returns what its producer is to be answered."""
        self.in_log.append(message.number)
        self.highest[message.producer] = message.sequence
        self.forgotten.discard(message.producer)
        return Answer(len(self.in_log) - 1)

    @rule(wanted=_wanted)
    def batch(self, wanted: Sequence[tuple[str, int]]) -> None:
        messages = self._messages(wanted)
        expected = [
            self.wrote(message) if self._is_new(message) else Answer(None) for message in messages
        ]
        assert self.log.append_all(messages) == expected

    @rule(wanted=_wanted, fault=_faults)
    def failing_batch(self, wanted: Sequence[tuple[str, int]], fault: Fault) -> None:
        messages = list({message.number: message for message in self._messages(wanted)}.values())
        expected = self._expected(messages, fault)
        self.log.last_sequence(PRODUCERS[0])  # the log can be read until the append
        error = UNKNOWN if fault.unknown else NotAppended("not taken")
        self.journal.fail_after(fault.good, error, written=fault.written)
        self.journal.blind_after = 1 if fault.away else None
        outcomes = self.log.append_all(messages)
        self.journal.heal()
        assert [_reported(outcome) for outcome in outcomes] == expected

    def _messages(self, wanted: Sequence[tuple[str, int]]) -> list[Numbered]:
        """Return messages in the order of their sequences, some of them there already."""
        messages = []
        for producer in {producer for producer, _ in wanted}:
            self.register(producer)
        for producer, step in wanted:
            lowest = self.highest[producer] + 1 if producer in self.forgotten else 0
            messages.append(self.message(producer, max(lowest, self.highest[producer] + step)))
        return sorted(messages, key=lambda message: message.sequence)

    def _is_new(self, message: Numbered) -> bool:
        return message.sequence > self.highest[message.producer]

    def _expected(self, messages: Sequence[Numbered], fault: Fault) -> list[object]:
        expected: list[object] = []
        good, broken = fault.good, False
        for message in messages:
            if not self._is_new(message):
                expected.append(Answer(None))
            elif broken:
                expected.append(NotAppended)
            elif good:
                expected.append(self.wrote(message))
                good -= 1
            else:
                place = self.wrote(message) if fault.written else NotAppended
                expected.append(DuplicateUnknown if fault.away else place)
                broken = True
        return expected

    @rule(producer=_producers)
    def a_message_without_an_answer(self, producer: str) -> None:
        """The process dies when its record is in the log, and nobody was notified."""
        message = self.new(producer)
        self.journal.append(self.topic, message.outgoing(None)).result(120)
        self.wrote(message)
        self.restart()
        assert self.log.append(message) == Answer(None)

    @rule()
    def somebody_elses_record(self) -> None:
        self.journal.append(self.topic, Outgoing(b"foreign")).result(120)
        self.in_log.append(None)

    @rule()
    def restart(self) -> None:
        self.log = self.start(self.store)
        self.check()

    @rule()
    def snapshot(self) -> None:
        self.log.take_snapshot()

    @rule(dies=st.sampled_from(["before", "after"]))
    def crash_in_a_snapshot(self, dies: str) -> None:
        log = self.start(CrashingSnapshots(self.store, dies))
        try:
            log.take_snapshot()
        except Crash:
            self.restart()
        else:
            raise AssertionError("the process did not die")

    @rule()
    def retention(self) -> None:
        """The log forgets what the snapshot knows."""
        kept = self.store.load(self.topic)
        if kept is not None:
            self.journal.truncate(self.topic, kept.position)

    @rule(producer=_producers)
    def a_newer_owner(self, producer: str) -> None:
        """A second process takes the name over; the first one wakes up later."""
        older, sleeper = self.epochs[producer], self.log
        self.restart()
        self.epochs[producer] = max(self.epochs.values()) + 1
        message = self.new(producer)
        assert self.log.append(message) == self.wrote(message)
        late = self.message(producer, self.highest[producer] + 1, older)
        for log in (self.log, sleeper, self.start(self.store)):
            (outcome,) = log.append_all([late])
            assert isinstance(outcome, ProducerFenced)

    @rule(active=st.sets(_producers))
    def expiry(self, active: set[str]) -> None:
        """Those that are not `active` are forgotten, and refused until they register anew."""
        self.log.take_snapshot()
        for producer in sorted(active):
            message = self.new(producer)
            assert self.log.append(message) == self.wrote(message)
        self.store.time_ms += IDLE_MS
        self.log.take_snapshot()
        used = [name for name in PRODUCERS if self.highest[name] >= 0]
        gone = [name for name in used if name not in active and name not in self.forgotten]
        for log in (self.log, self.start(self.store)):
            for producer in gone:
                for sequence in (0, self.highest[producer] + 1):
                    (outcome,) = log.append_all([self.message(producer, sequence)])
                    assert isinstance(outcome, ProducerExpired)
        self.forgotten.update(gone)

    def check(self) -> None:
        """Compare the highest sequences and the log itself: each message is there exactly once."""
        for producer, sequence in self.highest.items():
            unknown = sequence < 0 or producer in self.forgotten
            assert self.log.last_sequence(producer) == (None if unknown else sequence)
        oldest = self.journal.bounds(self.topic).oldest
        assert numbers_in(self.journal, self.topic) == [n for n in self.in_log[oldest:] if n]
        reported = [(number.producer, number.sequence) for number in self.in_log if number]
        assert len(set(reported)) == len(reported)

    def teardown(self) -> None:
        self.check()
        self.journal.close()


def _reported(outcome: Outcome) -> object:
    """Return an answer as it is, and of an error its kind."""
    return outcome if isinstance(outcome, Answer) else type(outcome)
