"""Deduplication agrees with its model, and the model notices builds that are wrong."""

from typing import Any

import pytest
from hypothesis import Phase

from packhorse.errors import PackhorseError
from packhorse.messaging import known_log
from packhorse.messaging.api import Journal
from packhorse.messaging.deduplication import (
    Deduplication,
    DeduplicationSnapshot,
    DeduplicationVerdict,
    SnapshotStore,
)
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from tests.harness import deduplication_model
from tests.harness.deduplication_model import DeduplicationMachine
from tests.harness.depth import examples
from tests.harness.machines import play

NOTICED = (AssertionError, PackhorseError)
"""How the machine reports a build that is wrong: a wrong answer, or one that it did not expect."""

DIRECTED: Any = {"phases": [Phase.generate], "derandomize": True, "database": None}
"""The same examples each time: by chance alone 200 of them may miss what is broken."""


class MemoryMachine(DeduplicationMachine):
    def open(self) -> Journal:
        return MemoryJournal(MemoryLog())


def test_each_message_is_in_the_log_once_and_the_highest_sequences_are_exact() -> None:
    play(MemoryMachine, examples(300))


class LessIsADuplicate(Deduplication):
    """Takes the seed's prose for its code: `<` instead of `<=`."""

    def verdict(self, producer: str, sequence: int, epoch: int = 1) -> DeduplicationVerdict:
        return super().verdict(producer, sequence + 1, epoch)


class PersistedTooEarly(Deduplication):
    """Counts as persisted what was merely pushed (Pulsar #5218)."""

    def check(self, producer: str, sequence: int, epoch: int = 1) -> DeduplicationVerdict:
        verdict = super().check(producer, sequence, epoch)
        self.persisted(producer, sequence, epoch)
        return verdict


class NeverReset(Deduplication):
    """Leaves a message that failed in doubt for ever (Pulsar #21892)."""

    def reset(self, producer: str) -> None:
        pass


class OlderEpochsWelcome(Deduplication):
    """Fences nobody."""

    def verdict(self, producer: str, sequence: int, epoch: int = 1) -> DeduplicationVerdict:
        return super().verdict(producer, sequence, 2**62)


class NoWatermark(Deduplication):
    """Forgets idle producers without a trace."""

    def expire(self, now_ms: int, idle_ms: int) -> list[str]:
        watermark = self._watermark
        gone = super().expire(now_ms, idle_ms)
        self._watermark = watermark
        return gone


class NeverForgets(Deduplication):
    """Lets no producer expire (Pulsar #15224)."""

    def expire(self, now_ms: int, idle_ms: int) -> list[str]:
        return []


@pytest.mark.proof
@pytest.mark.parametrize(
    "wrong",
    [
        LessIsADuplicate,
        PersistedTooEarly,
        NeverReset,
        OlderEpochsWelcome,
        NoWatermark,
        NeverForgets,
    ],
)
def test_a_state_that_is_wrong_is_noticed(
    wrong: type[Deduplication], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_log, "Deduplication", wrong)
    with pytest.raises(NOTICED):
        play(MemoryMachine, 200, **DIRECTED)


class BeyondTheEnd:
    """A snapshot that claims to know the record after the last one too."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.load, self.now_ms = store.load, store.now_ms

    def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
        position = snapshot.position + 1
        self._store.save(name, DeduplicationSnapshot(snapshot.journal_id, position, snapshot.state))


class NothingNew:
    """A snapshot that moves on without what it knows."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.load, self.now_ms = store.load, store.now_ms

    def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
        kept = self._store.load(name)
        state = kept.state if kept else Deduplication().snapshot()
        self._store.save(name, DeduplicationSnapshot(snapshot.journal_id, snapshot.position, state))


@pytest.mark.proof
@pytest.mark.parametrize("wrong", [BeyondTheEnd, NothingNew])
def test_a_snapshot_that_is_wrong_is_noticed(wrong: type) -> None:
    class WrongSnapshots(MemoryMachine):
        def start(self, store: SnapshotStore) -> deduplication_model.DeduplicatedLog:
            return super().start(wrong(store))

    with pytest.raises(NOTICED):
        play(WrongSnapshots, 200, **DIRECTED)


@pytest.mark.proof
def test_a_log_that_does_not_look_after_an_unknown_append_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hopeful(self: known_log.KnownLog) -> dict[known_log.Number, int]:
        for producer in self.doubted:
            self.state.reset(producer)
        self.doubted.clear()
        return {}

    monkeypatch.setattr(known_log.KnownLog, "catch_up", hopeful)
    with pytest.raises(NOTICED):
        play(MemoryMachine, 200, **DIRECTED)
