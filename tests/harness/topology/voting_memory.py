"""An eventually consistent voting store in memory: every reader sees every writer in its own time.

A session belongs to a process, not to an instance id: two processes may claim the same id. Each
has a replica; a write reaches its own at once and the others' after the delay from this writer to
that reader, in any order. Of two writes to one key the one made later wins everywhere.
"""

import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from packhorse.clock import Clock
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.voting.records import Heartbeat, StoreView, Vote, Voting

Key = tuple[str, ...]
_ESTABLISHED, _PREVIOUS = ("established",), ("previous",)


@dataclass(frozen=True)
class _Write:
    stamp: int
    writer: str
    key: Key
    value: object
    """None removes."""
    made_at: float


@dataclass
class _Replica:
    held: dict[Key, _Write] = field(default_factory=dict)
    on_the_way: list[_Write] = field(default_factory=list)

    def take(self, write: _Write) -> None:
        known = self.held.get(write.key)
        if known is None or known.stamp < write.stamp:
            self.held[write.key] = write

    def value(self, key: Key) -> object:
        write = self.held.get(key)
        return None if write is None else write.value

    def values(self, kind: str) -> list[object]:
        keys = sorted(key for key in self.held if key[0] == kind)
        return [value for key in keys if (value := self.value(key)) is not None]


class EventualStore:
    """The whole store; `session(process)` gives a process its way in."""

    def __init__(self, clock: Clock, cluster_id: str = "cluster", delay_s: float = 0.0) -> None:
        self.clock, self.cluster_id, self.delay_s = clock, cluster_id, delay_s
        self._lock = threading.RLock()
        self._stamps = itertools.count(1)
        self._last_start = -1
        self._delays: dict[tuple[str, str], float] = {}
        self._cut: set[tuple[str, str]] = set()
        self._away: set[str] = set()
        self._replicas: dict[str, _Replica] = {}
        self._log: list[_Write] = []
        self._bells: dict[str, threading.Event] = {}

    def session(self, process: str) -> "EventualSession":
        """Return the store as `process` sees it; a new process sees all that has arrived."""
        with self._lock:
            self._replicas.setdefault(process, _Replica(on_the_way=list(self._log)))
            self._bells.setdefault(process, threading.Event())
        return EventualSession(self, process)

    def delay(self, writer: str, reader: str, seconds: float) -> None:
        """Let what `writer` writes arrive at `reader` after so long, also what is on its way."""
        self._delays[writer, reader] = seconds

    def cut(self, *groups: Iterable[str]) -> None:
        """Let nothing arrive from one group of processes at another, in place of former cuts."""
        sides = [frozenset(group) for group in groups]
        pairs = itertools.permutations(sides, 2)
        self._cut = {(one, other) for left, right in pairs for one in left for other in right}

    def heal(self) -> None:
        """End all cuts and delays; what was held back arrives."""
        self._cut.clear()
        self._delays.clear()

    def away(self, process: str, away: bool = True) -> None:
        """Let every step of a process raise `StoreUnavailable`, or no longer."""
        (self._away.add if away else self._away.discard)(process)

    def start_time(self) -> int:
        with self._lock:
            self._last_start = max(int(self.clock.monotonic() * 1000), self._last_start + 1)
            return self._last_start

    def bell(self, process: str) -> threading.Event:
        return self._bells[process]

    def seen_by(self, process: str) -> _Replica:
        """Return the replica of a process with all that has arrived by now."""
        if process in self._away:
            raise StoreUnavailable("the store is away")
        with self._lock:
            replica, now = self._replicas[process], self.clock.monotonic()
            waiting, replica.on_the_way = replica.on_the_way, []
            for write in waiting:
                arrived = self._arrived(write, process, now)
                (replica.take if arrived else replica.on_the_way.append)(write)
            return replica

    def write(self, process: str, key: Key, value: object) -> None:
        with self._lock:
            replica = self.seen_by(process)
            write = _Write(next(self._stamps), process, key, value, self.clock.monotonic())
            replica.take(write)
            self._log.append(write)
            for other, theirs in self._replicas.items():
                if other != process:
                    theirs.on_the_way.append(write)

    def ring(self, process: str) -> None:
        """Give the others a hint."""
        for other, bell in self._bells.items():
            if other != process:
                bell.set()

    def _arrived(self, write: _Write, reader: str, now: float) -> bool:
        if (write.writer, reader) in self._cut:
            return False
        return now >= write.made_at + self._delays.get((write.writer, reader), self.delay_s)


class EventualSession:
    """A `VotingStore` for one process."""

    def __init__(self, store: EventualStore, process: str) -> None:
        self._store, self._process = store, process

    def start_time(self) -> int:
        self._store.seen_by(self._process)
        return self._store.start_time()

    def beat(self, heartbeat: Heartbeat, over: str = "") -> bool:
        key = ("heartbeat", heartbeat.member.instance_id)
        last = self._store.seen_by(self._process).value(key)
        if isinstance(last, Heartbeat):
            if last.member.runtime_id not in (heartbeat.member.runtime_id, over):
                return False
            news = (last.member, last.acknowledged, last.properties) != (
                heartbeat.member,
                heartbeat.acknowledged,
                heartbeat.properties,
            )
        else:
            news = True
        self._write(key, heartbeat, ring=news)
        return True

    def read(self) -> StoreView:
        seen = self._store.seen_by(self._process)
        established, previous = seen.value(_ESTABLISHED), seen.value(_PREVIOUS)
        votings = tuple(v for v in seen.values("voting") if isinstance(v, Voting))
        votes = (v for v in seen.values("vote") if isinstance(v, Vote))
        shown = {voting.id for voting in votings}
        return StoreView(
            cluster_id=self._store.cluster_id,
            heartbeats=tuple(v for v in seen.values("heartbeat") if isinstance(v, Heartbeat)),
            votings=votings,
            votes=frozenset(vote for vote in votes if vote.voting_id in shown),
            established=established if isinstance(established, Voting) else None,
            previous=previous if isinstance(previous, Voting) else None,
        )

    def propose(self, voting: Voting) -> None:
        self._write(("voting", voting.id), voting)
        self.vote(Vote(voting.id, voting.initiator, True))

    def vote(self, vote: Vote) -> None:
        seen, key = self._store.seen_by(self._process), ("vote", vote.voting_id, vote.instance_id)
        if seen.value(("voting", vote.voting_id)) is not None and key not in seen.held:
            self._write(key, vote)

    def withdraw(self, voting_id: str) -> None:
        seen = self._store.seen_by(self._process)
        if seen.value(("voting", voting_id)) is not None:
            self._write(("voting", voting_id), None)

    def promote(self, voting: Voting) -> bool:
        seen = self.read()
        is_there = voting in seen.votings
        all_yes = len(seen.voters(voting, yes=True)) == len(voting.members)
        if not (is_there and all_yes and voting.replaces == id_of(seen.established)):
            return False
        self._write(_PREVIOUS, seen.established)
        self._write(_ESTABLISHED, voting)
        self._write(("voting", voting.id), None)
        return True

    def leave(self, instance_id: str, runtime_id: str) -> None:
        key = ("heartbeat", instance_id)
        last = self._store.seen_by(self._process).value(key)
        if isinstance(last, Heartbeat) and last.member.runtime_id == runtime_id:
            self._write(key, None)

    def wait(self, seconds: float) -> bool:
        bell = self._store.bell(self._process)
        hinted = self._store.clock.wait(bell, seconds)
        bell.clear()
        return hinted

    def wake(self) -> None:
        self._store.bell(self._process).set()

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, key: Key, value: object, *, ring: bool = True) -> None:
        self._store.write(self._process, key, value)
        if ring:
            self._store.ring(self._process)


def id_of(voting: Voting | None) -> str:
    return "" if voting is None else voting.id
