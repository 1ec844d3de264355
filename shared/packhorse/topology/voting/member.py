"""One instance's part in a cluster that votes."""

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from packhorse.clock import Clock, SystemClock
from packhorse.topology.membership import DuplicateInstance, Observation, StoreUnavailable
from packhorse.topology.view import ClusterView, InstanceDescription
from packhorse.topology.voting.decisions import Decision, Outlook, decide, in_turn
from packhorse.topology.voting.records import (
    Heartbeat,
    Member,
    Snapshot,
    Voting,
    newest_start,
)
from packhorse.topology.voting.store import VotingStore
from packhorse.topology.voting.watch import Watch

logger = logging.getLogger(__name__)

DEFAULT_PREFIX = "1"


@dataclass(frozen=True, slots=True)
class VotingTimes:
    """How often an instance says that it lives, and for how long it is believed; the same for all.

    The store must show a change to everybody in less than `timeout_s`, or the cluster may split.
    """

    interval_s: float = 15.0
    timeout_s: float = 20.0

    @property
    def hurry_s(self) -> float:
        """Seconds between looks while something is changing."""
        return self.interval_s / 10

    @property
    def late_after_s(self) -> float:
        """The age of the own heartbeat from which on the own view holds no more (TI-10).

        It is never longer than the time-out, after which the others vote without this instance.
        """
        return max(min(self.timeout_s, 2 * self.interval_s), self.timeout_s - 2 * self.interval_s)


@dataclass(slots=True)
class _Need:
    """Since when the established view is not what is expected, and what was proposed in vain."""

    expected: frozenset[Member] = frozenset()
    replaces: str = ""
    since: float = 0.0
    refused: frozenset[Member] | None = None
    refused_at: float = 0.0


class VotingMember:
    """`Membership` over a `VotingStore`; driven by one thread, time comes from `clock` alone.

    `runtime_id` is a fresh UUID unless it is given.
    """

    def __init__(
        self,
        store: VotingStore,
        instance_id: str,
        *,
        times: VotingTimes = VotingTimes(),
        prefix: str = DEFAULT_PREFIX,
        clock: Clock | None = None,
        runtime_id: str = "",
    ) -> None:
        self._store, self._instance_id, self._prefix = store, instance_id, prefix
        self._times, self._clock = times, clock or SystemClock()
        self._runtime_id = runtime_id or str(uuid.uuid4())
        self._watch = Watch(times.timeout_s)
        self._need = _Need()
        self._me: Member | None = None
        self._over = self._acknowledged = ""
        self._count = self._proposals = 0
        self._done_at: float | None = None
        self._snapshot: Snapshot | None = None
        self._calm = self._asked = False

    @property
    def instance_id(self) -> str:
        """The persistent id."""
        return self._instance_id

    @property
    def runtime_id(self) -> str:
        """The id of this process, which its heartbeats bear (TI-05)."""
        return self._runtime_id

    @property
    def interval_s(self) -> float:
        """Seconds to the next `beat`: the heartbeat's, or a tenth while something is changing."""
        return self._times.interval_s if self._calm else self._times.hurry_s

    def snapshot(self) -> Snapshot | None:
        """Return what was seen last of heartbeats, votings and views; for people."""
        return self._snapshot

    def start_new_voting(self) -> None:
        """Let the cluster agree anew though nothing has changed; may be called by any thread."""
        self._asked = True
        self._store.wake()

    def beat(self, properties: Mapping[str, str]) -> Observation:
        """Write the heartbeat, look, vote; see `Membership.beat`."""
        began = self._clock.monotonic()
        was_late = self._was_late(began)
        self._calm = False
        if self._me is None:
            self._me = self._enter(began)
        if self._me is None:
            return _nothing(began)
        self._write(self._me, properties)
        seen = self._look()
        self._done_at = began
        if not in_turn(self._me, seen.established):
            return self._come_again(seen, began)
        decision = decide(self._outlook(self._me, seen, began))
        self._carry_out(decision, seen, began)
        until = began + self._times.late_after_s
        return self._observation(decision.holds and not was_late, seen, until)

    def acknowledge(self, revision: str) -> None:
        """See `Membership.acknowledge`."""
        self._acknowledged = revision

    def wait(self, seconds: float) -> None:
        """See `Membership.wait`."""
        self._store.wait(seconds)

    def wake(self) -> None:
        """See `Membership.wake`."""
        self._store.wake()

    def leave(self) -> None:
        """Remove the own heartbeat; without a store the others notice after the time-out."""
        with suppress(StoreUnavailable):
            for voting in self._snapshot.votings if self._snapshot else ():
                if voting.id.startswith(f"{self._runtime_id}."):
                    self._store.withdraw(voting.id)
            self._store.leave(self._instance_id, self._runtime_id)
        self._store.close()

    def _was_late(self, now: float) -> bool:
        """Who was late does not know either whom of the others it has missed."""
        if self._done_at is None or now - self._done_at <= self._times.late_after_s:
            return False
        self._watch.doubt()
        return self._me is not None

    def _look(self) -> Snapshot:
        seen = self._store.read()
        self._watch.look(seen, self._clock.monotonic())
        self._snapshot = seen
        return seen

    def _enter(self, now: float) -> Member | None:
        """Return what to begin as, or None while the id belongs to another process that may live.

        Raises `DuplicateInstance` when it does live. That takes a time-out, because the last
        heartbeats of a process that has ended may become visible late.
        """
        seen = self._look()
        self._done_at = now
        beat = seen.heartbeat_of(self._instance_id)
        self._over = "" if beat is None else beat.member.runtime_id
        if beat is None or self._over == self._runtime_id:
            return self._newcomer(seen)
        if beat.member in self._watch.alive(now) and self._watch.is_sure(now):
            raise self._duplicate()
        if beat.member in self._watch.alive(now) | self._watch.possible(now):
            return None
        return self._newcomer(seen)

    def _newcomer(self, seen: Snapshot) -> Member:
        members = seen.established.members if seen.established else frozenset()
        started_ms = max(self._store.start_time(), newest_start(members) + 1)
        return Member(self._instance_id, self._runtime_id, self._prefix, started_ms)

    def _come_again(self, seen: Snapshot, now: float) -> Observation:
        """Take the last place: the others have agreed on a view without this instance."""
        self._me = self._newcomer(seen)
        self._store.wake()
        return _nothing(now)

    def _write(self, me: Member, properties: Mapping[str, str]) -> None:
        self._count += 1
        heartbeat = Heartbeat(me, self._count, self._acknowledged, dict(properties))
        if not self._store.beat(heartbeat, self._over):
            self._me = None
            raise self._duplicate()
        self._over = ""

    def _duplicate(self) -> DuplicateInstance:
        return DuplicateInstance(
            f"another live process has the instance id {self._instance_id}; "
            "give one of the two an id of its own"
        )

    def _outlook(self, me: Member, seen: Snapshot, now: float) -> Outlook:
        return Outlook(
            me=me,
            snapshot=seen,
            alive=self._watch.alive(now),
            possible=self._watch.possible(now),
            is_sure=self._watch.is_sure(now),
            timed_out=self._watch.timed_out(now),
            heard_since={one.id: self._watch.heard_since(one.id) for one in seen.votings},
        )

    def _carry_out(self, decision: Decision, seen: Snapshot, now: float) -> None:
        for voting in decision.withdraw:
            self._note_refusal(voting, seen, now)
            self._store.withdraw(voting.id)
        for vote in decision.votes:
            self._store.vote(vote)
        if decision.promote and self._store.promote(decision.promote):
            logger.info("a voting has won", extra={"voting": decision.promote.id})
            self._store.wake()
        if decision.may_propose and self._is_my_turn(decision, seen, now):
            self._propose(decision.expected, seen)

    def _note_refusal(self, voting: Voting, seen: Snapshot, now: float) -> None:
        if voting.initiator == self._instance_id and seen.voters(voting, yes=False):
            self._need.refused, self._need.refused_at = voting.members, now

    def _is_my_turn(self, decision: Decision, seen: Snapshot, now: float) -> bool:
        """Anybody may propose; the first member does so at once, the others if it doesn't.

        What was refused isn't proposed again for an interval.
        """
        need, established = self._need, seen.established
        replaces = established.id if established else ""
        if (need.expected, need.replaces) != (decision.expected, replaces):
            need.expected, need.replaces, need.since = decision.expected, replaces, now
        if self._asked:
            return True
        if established is not None and established.members == decision.expected:
            return False
        if need.refused == decision.expected and now - need.refused_at < self._times.interval_s:
            return False
        first = min(decision.expected, key=lambda one: one.leader_election_id)
        return first == self._me or now - need.since >= 2 * self._times.hurry_s

    def _propose(self, expected: frozenset[Member], seen: Snapshot) -> None:
        replaces = seen.established.id if seen.established else ""
        self._proposals += 1
        id_ = f"{self._runtime_id}.{self._proposals}"
        self._store.propose(Voting(id_, replaces, self._instance_id, expected))
        self._asked = False
        self._store.wake()

    def _observation(self, holds: bool, seen: Snapshot, valid_until: float) -> Observation:
        established = seen.established
        if not holds or established is None:
            return Observation(None, "", False, valid_until)
        said = {one.member: one.acknowledged for one in seen.heartbeats}
        settled = all(said.get(one) == established.id for one in established.members)
        self._calm = settled and not self._asked
        view = _view(established, seen, self._instance_id)
        return Observation(view, established.id, settled, valid_until)


def _nothing(now: float) -> Observation:
    return Observation(None, "", False, now)


def _view(established: Voting, seen: Snapshot, local_id: str) -> ClusterView:
    properties = {one.member: one.properties for one in seen.heartbeats}
    instances = tuple(
        InstanceDescription(
            id=member.instance_id,
            cluster_id=seen.cluster_id,
            is_leader=place == 0,
            is_local=member.instance_id == local_id,
            properties=properties.get(member, {}),
        )
        for place, member in enumerate(established.in_order)
    )
    return ClusterView(seen.cluster_id, instances)
