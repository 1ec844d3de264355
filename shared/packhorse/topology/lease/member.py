"""One instance's part in a cluster of leases."""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from packhorse.clock import Clock, SystemClock
from packhorse.topology.lease.judgement import Judgement, Renewed
from packhorse.topology.lease.store import (
    ClusterState,
    Incarnation,
    InstanceEntry,
    InstanceState,
    JoinOutcome,
    LeaseStore,
    Pulse,
    Renewal,
)
from packhorse.topology.membership import DuplicateInstance, Observation, StoreUnavailable
from packhorse.topology.view import ClusterView, InstanceDescription

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
LEASE_S = 10.0


class LeaseMember:
    """`Membership` over a `LeaseStore`; driven by one thread, time comes from `clock` alone.

    The own clock says only how long the last renewal holds, counted from before it was sent; who
    is alive is said by the database's. `runtime_id` is a fresh UUID unless it is given.
    """

    def __init__(
        self,
        store: LeaseStore,
        instance_id: str,
        *,
        interval_s: float = INTERVAL_S,
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
        runtime_id: str = "",
    ) -> None:
        self._store, self._interval_s, self._lease_s = store, interval_s, lease_s
        self._clock = clock or SystemClock()
        self._who = Incarnation(instance_id, runtime_id or str(uuid.uuid4()))
        self._judgement = Judgement(lease_s)
        self._state: ClusterState | None = None
        self._stored: dict[str, str] | None = None
        self._acknowledged = self._announced = 0
        self._taken_since: float | None = None

    @property
    def instance_id(self) -> str:
        """The persistent id."""
        return self._who.instance_id

    @property
    def runtime_id(self) -> str:
        """The id of this run."""
        return self._who.runtime_id

    @property
    def interval_s(self) -> float:
        """Seconds from one `beat` to the next."""
        return self._interval_s

    def beat(self, properties: Mapping[str, str]) -> Observation:
        """Renew the lease or join, retire others that are overdue; see `Membership.beat`."""
        sent_at = self._clock.monotonic()
        pulse = self._renew(properties)
        if pulse is None and not self._join(properties):
            return Observation(None, "", False, sent_at)
        state = self._current(pulse)
        if pulse is not None:
            answered_at = self._clock.monotonic()
            self._judgement.renewed(Renewed(sent_at, answered_at, pulse.now_s, pulse.session))
            state = self._retire(state) if pulse.overdue else state
        own = own_entry(state, self._who)
        if own is None:
            return Observation(None, "", False, sent_at)
        if own.properties != self._stored:  # a renewal that was given up came through late
            self._stored = None
        known = pulse is not None and pulse.seq == state.seq and pulse.acknowledged_by_all
        acknowledged = known or state.acknowledged_by_all
        return observe(state, acknowledged, self._who, sent_at + self._lease_s)

    def acknowledge(self, revision: str) -> None:
        """See `Membership.acknowledge`; `wait` returns at once when this is news."""
        if self._state is None or revision != str(self._state.seq):
            return
        if self._acknowledged < self._state.seq:
            self._acknowledged = self._state.seq
            self._store.wake()

    def wait(self, seconds: float) -> bool:
        """See `Membership.wait`."""
        return self._store.wait(seconds)

    def wake(self) -> None:
        """See `Membership.wake`."""
        self._store.wake()

    def leave(self) -> None:
        """End the membership and the session; without a database the lease runs out by itself."""
        try:
            self._store.leave(self._who)
        except StoreUnavailable as error:
            logger.warning("the cluster is not notified of the leaving: %s", error)
        self._store.close()

    def cluster_document(self) -> dict[str, Any] | None:
        """Return the discovery-lite document as last seen; None before the first joining.

        {seq, final, id, me, active[], deactivating[], inactive[]}: numbers of instances.
        """
        return None if self._state is None else cluster_document(self._state, self._who)

    def numbers(self) -> dict[int, str]:
        """Return the active and the deactivating instances' ids by their numbers, as last seen."""
        entries = () if self._state is None else self._state.entries
        return {entry.number: entry.who.instance_id for entry in entries}

    def _renew(self, properties: Mapping[str, str]) -> Pulse | None:
        news = None if self._stored == properties else dict(properties)
        announce = self._acknowledged > self._announced
        self._stored = None  # what is stored is unknown until the answer is there
        pulse = self._store.renew(
            Renewal(self._who, self._lease_s, self._acknowledged, news, announce)
        )
        self._stored, self._announced = dict(properties), self._acknowledged
        return pulse

    def _join(self, properties: Mapping[str, str]) -> bool:
        self._judgement.forget()
        self._acknowledged = self._announced = 0
        self._stored = None
        outcome = self._store.join(Renewal(self._who, self._lease_s, 0, dict(properties)))
        if outcome is JoinOutcome.TAKEN:
            self._wait_for_the_other(self._clock.monotonic())
        else:
            self._taken_since = None
        if outcome is JoinOutcome.JOINED:
            self._stored = dict(properties)
        return outcome is JoinOutcome.JOINED

    def _wait_for_the_other(self, now: float) -> None:
        """Raise once the lease of a process that has ended must have run out."""
        if self._taken_since is None:
            self._taken_since = now
        if now - self._taken_since > self._lease_s * 1.1:
            raise DuplicateInstance(
                f"another live process has the instance id {self.instance_id}; "
                "give one of the two an id of its own"
            )

    def _current(self, pulse: Pulse | None) -> ClusterState:
        """Return the state that the pulse speaks of, or a newer one."""
        known = self._state
        if pulse and known and (known.seq, known.editions) == (pulse.seq, pulse.editions):
            return known
        return self._look()

    def _look(self) -> ClusterState:
        state = self._store.look()
        if state is None:
            raise StoreUnavailable("the cluster's row is gone; the database was emptied")
        self._state = state
        return state

    def _retire(self, state: ClusterState) -> ClusterState:
        if not self._judgement.may_judge(self._clock.monotonic()):
            return state
        try:
            self._store.retire(self._who)
        except StoreUnavailable as error:  # the own lease is renewed, and another may succeed
            logger.warning("others can't be retired now: %s", error)
        return self._look()


def own_entry(state: ClusterState, who: Incarnation) -> InstanceEntry | None:
    """Return the entry of this incarnation if it is active."""
    found = (entry for entry in _in_state(state, InstanceState.ACTIVE) if entry.who == who)
    return next(found, None)


def observe(
    state: ClusterState, acknowledged_by_all: bool, who: Incarnation, valid_until: float
) -> Observation:
    """Return what an active instance sees: the first to have joined leads."""
    active = _in_state(state, InstanceState.ACTIVE)
    instances = tuple(
        InstanceDescription(
            entry.who.instance_id,
            state.cluster_id,
            is_leader=place == 0,
            is_local=entry.who == who,
            properties=entry.properties,
        )
        for place, entry in enumerate(active)
    )
    settled = is_final(state) and acknowledged_by_all
    view = ClusterView(state.cluster_id, instances)
    return Observation(view, str(state.seq), settled, valid_until)


def is_final(state: ClusterState) -> bool:
    """Return whether what leaving instances left behind is dealt with."""
    return not _in_state(state, InstanceState.DEACTIVATING)


def cluster_document(state: ClusterState, who: Incarnation) -> dict[str, Any]:
    """Return the discovery-lite document; `me` is None while it takes no part."""
    own = own_entry(state, who)
    return {
        "seq": state.seq,
        "final": is_final(state),
        "id": state.cluster_id,
        "me": None if own is None else own.number,
        "active": _numbers(state, InstanceState.ACTIVE),
        "deactivating": _numbers(state, InstanceState.DEACTIVATING),
        "inactive": list(state.inactive),
    }


def _in_state(state: ClusterState, wanted: InstanceState) -> list[InstanceEntry]:
    return [entry for entry in state.entries if entry.state is wanted]


def _numbers(state: ClusterState, wanted: InstanceState) -> list[int]:
    return sorted(entry.number for entry in _in_state(state, wanted))
