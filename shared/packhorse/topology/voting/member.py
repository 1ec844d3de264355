"""One instance's part in a cluster that votes."""

import logging
import math
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from packhorse.clock import Clock, SystemClock
from packhorse.topology.membership import DuplicateInstance, Observation, StoreUnavailable
from packhorse.topology.properties import DEFAULT_PREFIX
from packhorse.topology.view import ClusterView, InstanceDescription
from packhorse.topology.voting.decisions import VoteDecision, VotingSituation, decide, in_turn
from packhorse.topology.voting.records import (
    Heartbeat,
    Member,
    StoreView,
    Voting,
    newest_start,
)
from packhorse.topology.voting.store import VotingStore
from packhorse.topology.voting.times import DEFAULT_TIMES, VotingTimes
from packhorse.topology.voting.turns import ProposalTurns
from packhorse.topology.voting.watch import PeerWatch

logger = logging.getLogger(__name__)


class VotingMember:
    """`Membership` over a `VotingStore`; driven by one thread, time comes from `clock` alone.

    `runtime_id` is a fresh UUID unless it is given.
    """

    def __init__(
        self,
        store: VotingStore,
        instance_id: str,
        *,
        times: VotingTimes = DEFAULT_TIMES,
        prefix: str = DEFAULT_PREFIX,
        clock: Clock | None = None,
        runtime_id: str = "",
    ) -> None:
        self._store, self._instance_id, self._prefix = store, instance_id, prefix
        self._times, self._clock = times, clock or SystemClock()
        self._runtime_id = runtime_id or str(uuid.uuid4())
        self._watch = PeerWatch(times.timeout_s)
        self._turns = ProposalTurns(times)
        self._me: Member | None = None
        self._over = self._acknowledged = ""
        self._count = self._proposals = 0
        self._sent: Heartbeat | None = None
        self._sent_at = self._looked_at = math.inf
        self._snapshot: StoreView | None = None
        self._calm = self._requested = False

    @property
    def instance_id(self) -> str:
        """The persistent id."""
        return self._instance_id

    @property
    def runtime_id(self) -> str:
        """The id of this process, which its heartbeats bear."""
        return self._runtime_id

    @property
    def interval_s(self) -> float:
        """Seconds to the next `beat`, which is fewer while something is changing."""
        return self._times.look_s if self._calm else self._times.hurry_s

    def snapshot(self) -> StoreView | None:
        """Return what was seen last of heartbeats, votings and views; for people."""
        return self._snapshot

    def start_new_voting(self) -> None:
        """Let the cluster agree anew though nothing has changed; may be called by any thread."""
        self._requested = True
        self._store.wake()

    def beat(self, properties: Mapping[str, str]) -> Observation:
        """Write the heartbeat if it is due or has news, look, vote; see `Membership.beat`."""
        began = self._clock.monotonic()
        was_late = self._was_late(began)
        self._calm = False
        if self._me is None:
            self._me = self._enter(began)
        if self._me is None:
            return nothing(began)
        self._say(self._me, properties, began)
        seen = self._look(began)
        self._check_alone(seen)
        if not in_turn(self._me, seen.established):
            return self._come_again(seen, began)
        situation = self._outlook(self._me, seen, began)
        decision = decide(situation)
        self._carry_out(decision, situation, began)
        until = self._sent_at + self._times.late_after_s
        if was_late or not decision.holds or seen.established is None:
            return nothing(until)
        observation = observe(seen.established, seen, self._instance_id, until)
        self._calm = observation.settled and not self._requested
        return observation

    def acknowledge(self, revision: str) -> None:
        """See `Membership.acknowledge`."""
        self._acknowledged = revision

    def wait(self, seconds: float) -> bool:
        """See `Membership.wait`."""
        return self._store.wait(seconds)

    def wake(self) -> None:
        """See `Membership.wake`."""
        self._store.wake()

    def leave(self) -> None:
        """Remove the own heartbeat; without a store the others notice after the time-out."""
        with suppress(StoreUnavailable):
            if self._proposals:  # of the own votings only the last may be open
                self._store.withdraw(self._voting_id())
            self._store.leave(self._instance_id, self._runtime_id)
        self._store.close()

    def _voting_id(self) -> str:
        return f"{self._runtime_id}.{self._proposals}"

    def _was_late(self, now: float) -> bool:
        """Who was late does not know either whom of the others it has missed."""
        if now - min(self._sent_at, self._looked_at) <= self._times.late_after_s:
            return False
        self._watch.doubt()
        return self._me is not None

    def _look(self, now: float) -> StoreView:
        seen = self._store.read()
        self._watch.look(seen, self._clock.monotonic())
        self._snapshot, self._looked_at = seen, now
        return seen

    def _enter(self, now: float) -> Member | None:
        """Return what to begin as, or None while the id belongs to another process that may live.

        Raises `DuplicateInstance` when it does live. That takes a time-out, because the last
        heartbeats of a process that has ended may become visible late.
        """
        seen = self._look(now)
        beat = seen.heartbeat_of(self._instance_id)
        self._over = "" if beat is None else beat.member.runtime_id
        if beat is None or self._over == self._runtime_id:
            return self._newcomer(seen)
        if beat.member in self._watch.alive(now) and self._watch.is_sure(now):
            raise self._duplicate()
        if beat.member in self._watch.alive(now) | self._watch.possible(now):
            return None
        return self._newcomer(seen)

    def _newcomer(self, seen: StoreView) -> Member:
        members = seen.established.members if seen.established else frozenset()
        started_ms = max(self._store.start_time(), newest_start(members) + 1)
        return Member(self._instance_id, self._runtime_id, self._prefix, started_ms)

    def _come_again(self, seen: StoreView, now: float) -> Observation:
        """Take the last place: the others have agreed on a view without this instance."""
        self._me = self._newcomer(seen)
        self._store.wake()
        return nothing(now)

    def _say(self, me: Member, properties: Mapping[str, str], now: float) -> None:
        heartbeat = Heartbeat(me, self._count, self._acknowledged, dict(properties))
        is_due = now - self._sent_at >= self._times.interval_s - self._times.look_s / 2
        if heartbeat == self._sent and not is_due:
            return
        self._count += 1
        heartbeat, self._sent = replace(heartbeat, count=self._count), None
        if not self._store.beat(heartbeat, self._over):
            raise self._displaced()
        self._sent, self._sent_at, self._over = heartbeat, now, ""

    def _check_alone(self, seen: StoreView) -> None:
        beat = seen.heartbeat_of(self._instance_id)
        if beat is not None and beat.member.runtime_id != self._runtime_id:
            raise self._displaced()

    def _displaced(self) -> DuplicateInstance:
        self._me, self._sent, self._sent_at = None, None, math.inf
        return self._duplicate()

    def _duplicate(self) -> DuplicateInstance:
        return DuplicateInstance(
            f"another live process has the instance id {self._instance_id}; "
            "give one of the two an id of its own"
        )

    def _outlook(self, me: Member, seen: StoreView, now: float) -> VotingSituation:
        return VotingSituation(
            me=me,
            snapshot=seen,
            alive=self._watch.alive(now),
            possible=self._watch.possible(now),
            is_sure=self._watch.is_sure(now),
            timed_out=self._watch.timed_out(now),
            heard_since={one.id: self._watch.heard_since(one.id) for one in seen.votings},
        )

    def _carry_out(self, decision: VoteDecision, situation: VotingSituation, now: float) -> None:
        for voting in decision.withdraw:
            self._store.withdraw(voting.id)
        for vote in decision.votes:
            self._store.vote(vote)
        if decision.promote and self._store.promote(decision.promote):
            logger.info("a voting has won", extra={"voting": decision.promote.id})
            self._store.wake()
        self._turns.note(situation, decision, now)
        is_asked = self._requested and decision.may_propose
        if is_asked or self._turns.is_mine(situation, decision, now):
            self._propose(decision.expected, situation)

    def _propose(self, expected: frozenset[Member], situation: VotingSituation) -> None:
        self._proposals += 1
        voting = Voting(self._voting_id(), situation.established_id, self._instance_id, expected)
        self._store.propose(voting)
        self._requested = False
        self._store.wake()


def nothing(valid_until: float) -> Observation:
    """Return the observation of an instance that may rely on no view."""
    return Observation(None, "", False, valid_until)


def observe(established: Voting, seen: StoreView, local_id: str, valid_until: float) -> Observation:
    """Return the established view as the local instance sees it, which is one of its members.

    It is settled once every member's heartbeat acknowledges it.
    """
    said = {one.member: one.acknowledged for one in seen.heartbeats}
    settled = all(said.get(member) == established.id for member in established.members)
    return Observation(_view(established, seen, local_id), established.id, settled, valid_until)


def _view(established: Voting, seen: StoreView, local_id: str) -> ClusterView:
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
