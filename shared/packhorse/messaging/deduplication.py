"""Which message of which producer is in the log already: the state, without any I/O.

With `numbered`, `known_log` and `deduplicated` it is a public part of the library, for any program
that appends to a topic; of packhorse's own services the publisher uses it.

It follows Pulsar's: for each producer the highest sequence that was *pushed* towards the log and
the highest that is known to be *persisted* there are kept apart.

    sequence > pushed                 not a duplicate, and from now on pushed
    sequence <= persisted             a duplicate: it is in the log
    persisted < sequence <= pushed    unknown: it was pushed, and nobody has said what became of it

Sequences of one producer grow, with gaps or without; they go on over epochs. A sequence that a
producer skipped may not come later: it would be reported as a duplicate.

An epoch fences: once a newer epoch of a name was seen, an older one is refused. All producers of
one state take their epochs from one growing source, for that is what makes forgetting safe. When
an idle producer is forgotten, nothing of it is kept but the *fencing watermark*: the highest epoch
of all that were ever forgotten. A name that is not known and comes with an epoch at or below the
watermark may be a forgotten one, so it is refused (`ProducerExpired`) until it has registered anew,
which gives it an epoch above the watermark, and says that nothing of its sequences is known any
longer. So no old sequence is ever taken for a new one in silence, and memory is bounded by the
number of producers.
"""

import enum
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from packhorse.errors import Permanent, Transient

NOTHING = -1
"""Below every sequence: nothing of the producer was pushed, or persisted."""


class DeduplicationVerdict(enum.Enum):
    """What is known of a message before it is appended."""

    NOT_DUP = "not-dup"
    DUP = "dup"
    UNKNOWN = "unknown"


class _TooLow(Permanent):
    """The epoch is too low; one above `epoch` is taken, if that is not 0."""

    def __init__(self, detail: str, epoch: int = 0) -> None:
        super().__init__(detail)
        self.epoch = epoch


class ProducerFenced(_TooLow):
    """Somebody else has registered under the name since; register anew to take it back."""


class ProducerExpired(_TooLow):
    """The name may be one that was forgotten; register anew to begin again under it."""


class TooManyActiveProducers(Transient):
    """As many producers as allowed are active; try again when one has become idle."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What is certain of one producer, as a snapshot keeps it."""

    epoch: int
    sequence: int
    """The highest that is in the log; `NOTHING` when none is."""
    used_ms: int
    """When it was last seen in use, by the clock of `expire`'s argument."""


@dataclass(frozen=True, slots=True)
class DeduplicationState:
    """All that is certain, for a snapshot; what was merely pushed is not part of it."""

    producers: Mapping[str, ProducerState] = field(default_factory=dict)
    watermark: int = 0


@dataclass(frozen=True, slots=True)
class DeduplicationSnapshot:
    """What is known of all records of the journal `journal_id` below `position`, and maybe more."""

    journal_id: str
    position: int
    state: DeduplicationState


class SnapshotStore(Protocol):
    """Keeps the last snapshot of each owner, and gives the time that expiry goes by (R28)."""

    def load(self, name: str) -> DeduplicationSnapshot | None:
        """Return what was saved last under `name`. Raises a `Transient` when that is not known."""
        ...

    def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
        """Keep a snapshot, whole or not at all; one that is behind the kept one changes nothing.

        Raises a `Transient` when that can't be done, or nobody knows whether it was.
        """
        ...

    def now_ms(self) -> int:
        """Return the store's clock, in milliseconds. Raises a `Transient`."""
        ...


@dataclass(slots=True)
class _Producer:
    epoch: int
    pushed: int = NOTHING
    persisted: int = NOTHING
    used_ms: int = 0
    turn: int = 0
    """When it was used, counted in uses of any producer; 0 before the restart."""


class Deduplication:
    """The state of one topic partition; used by one thread at a time.

    At most `producers` names are known at once. Epochs are above 0.
    """

    def __init__(self, producers: int = 10_000) -> None:
        self._limit, self._watermark = producers, 0
        self._producers: dict[str, _Producer] = {}
        self._turn = self._timed = 0

    def check(self, producer: str, sequence: int, epoch: int = 1) -> DeduplicationVerdict:
        """Say what is known of a message; one that is no duplicate counts as pushed from now on.

        Raises:
            ProducerFenced: the name is in use under a newer epoch.
            ProducerExpired: the name is unknown, and may be a forgotten one.
            TooManyActiveProducers: the name is unknown, and there is no room for another.
        """
        verdict = self.verdict(producer, sequence, epoch)
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer(epoch)
        known.epoch, known.turn = epoch, self._next_turn()
        if verdict is DeduplicationVerdict.NOT_DUP:
            known.pushed = sequence
        return verdict

    def verdict(self, producer: str, sequence: int, epoch: int = 1) -> DeduplicationVerdict:
        """Say the same as `check`, and change nothing."""
        known = self._producers.get(producer)
        if known is None:
            self._refuse_stranger(producer, epoch)
            return DeduplicationVerdict.NOT_DUP
        if epoch < known.epoch:
            raise ProducerFenced(
                f"producer {producer} was registered anew: its epoch is {known.epoch}, and "
                f"{epoch} is refused; register again to go on under the name",
                known.epoch,
            )
        if sequence > known.pushed:
            return DeduplicationVerdict.NOT_DUP
        return (
            DeduplicationVerdict.DUP
            if sequence <= known.persisted
            else DeduplicationVerdict.UNKNOWN
        )

    def _refuse_stranger(self, producer: str, epoch: int) -> None:
        if epoch <= self._watermark:
            raise ProducerExpired(
                f"producer {producer} with epoch {epoch} is not known, or no longer; register "
                "again, and begin after what you know to be published",
                self._watermark,
            )
        if len(self._producers) >= self._limit:
            raise TooManyActiveProducers(
                f"{self._limit} producers are active, which is the limit; try again later"
            )

    def persisted(self, producer: str, sequence: int, epoch: int = 1) -> None:
        """Note that a message is in the log: to be called after that is certain, never before.

        It takes whatever the log holds, also of producers that were not known: if there is no room
        for them, some are forgotten that were used longest ago.
        """
        known = self._producers.get(producer)
        if known is None:
            self._make_room()
            known = self._producers[producer] = _Producer(epoch)
        known.epoch = max(known.epoch, epoch)
        known.persisted = max(known.persisted, sequence)
        known.pushed = max(known.pushed, sequence)
        known.turn = self._next_turn()

    def reset(self, producer: str) -> None:
        """Take back what was pushed and is not persisted, after it is certain that it failed.

        Nothing of the producer may be on its way to the log any longer.
        """
        known = self._producers.get(producer)
        if known is not None:
            known.pushed = known.persisted

    def last_sequence(self, producer: str) -> int | None:
        """Return the highest sequence that is in the log, or None when nothing is known."""
        known = self._producers.get(producer)
        return known.persisted if known is not None and known.persisted != NOTHING else None

    def expire(self, now_ms: int, idle_ms: int) -> list[str]:
        """Forget the producers that were not used for `idle_ms`, and return their names.

        The caller gives the time of the one clock that counts (R28). A producer counts as used at
        the first call after its use, so this is to be called more often than `idle_ms` passes. One
        with a message on its way is never forgotten.
        """
        for known in self._producers.values():
            if known.turn > self._timed:
                known.used_ms = now_ms
        self._timed = self._turn
        idle = [
            name
            for name, known in self._producers.items()
            if known.used_ms <= now_ms - idle_ms and known.pushed == known.persisted
        ]
        self._forget(idle)
        return idle

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def _make_room(self) -> None:
        """Forget a tenth of a full table, so that a log of very many names is read in no time."""
        if len(self._producers) >= self._limit:
            excess = len(self._producers) - self._limit + max(1, self._limit // 10)
            self._forget(heapq.nsmallest(excess, self._producers, key=self._last_use))

    def _last_use(self, name: str) -> tuple[int, int]:
        known = self._producers[name]
        return known.turn, known.used_ms

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._watermark = max(self._watermark, self._producers.pop(name).epoch)

    def snapshot(self) -> DeduplicationState:
        """Return what is persisted; nothing that was merely pushed."""
        return DeduplicationState(
            {
                name: ProducerState(known.epoch, known.persisted, known.used_ms)
                for name, known in self._producers.items()
            },
            self._watermark,
        )

    def restore(self, state: DeduplicationState) -> None:
        """Begin again with a snapshot; the log's messages after it are `persisted` next."""
        self._watermark, self._turn, self._timed = state.watermark, 0, 0
        self._producers = {
            name: _Producer(kept.epoch, kept.sequence, kept.sequence, kept.used_ms)
            for name, kept in state.producers.items()
        }
