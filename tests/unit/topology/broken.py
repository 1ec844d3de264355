"""Builds that break one promise each: what the simulator has to find."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from packhorse.topology.events import EventFlow, EventKind, TopologyEvent
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.store import ClusterState, InstanceState, Pulse, Renewal
from packhorse.topology.listeners import ViewMailbox
from packhorse.topology.membership import Observation
from packhorse.topology.view import ClusterView
from packhorse.topology.voting.records import StoreView, Vote, Voting
from tests.harness.topology.sites import Build
from tests.harness.topology.voting_memory import EventualSession, Key


class _Through:
    """A store whose other steps are left as they are."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, step: str) -> Any:
        return getattr(self.inner, step)


class _RenewsForEver(_Through):
    """Takes a lease that was lost for one that was renewed."""

    _last: Pulse | None = None

    def renew(self, renewal: Renewal) -> Pulse | None:
        pulse: Pulse | None = self.inner.renew(renewal)
        self._last = pulse or self._last
        return self._last


class _ForgetsTheLeaving(_Through):
    """Does not look at who is deactivating."""

    def look(self) -> ClusterState | None:
        state: ClusterState | None = self.inner.look()
        if state is None:
            return None
        active = tuple(one for one in state.entries if one.state is InstanceState.ACTIVE)
        return replace(state, entries=active)


class _SortsById(_Through):
    def look(self) -> ClusterState | None:
        state: ClusterState | None = self.inner.look()
        if state is None:
            return None
        entries = sorted(state.entries, key=lambda one: one.who.instance_id)
        return replace(state, entries=tuple(entries))


class _BelievesAll(_Through):
    """Takes every revision for acknowledged by all."""

    def renew(self, renewal: Renewal) -> Pulse | None:
        pulse: Pulse | None = self.inner.renew(renewal)
        return pulse and replace(pulse, acknowledged_by_all=True)


class _Hasty(_Through):
    """Takes silence for a yes, and promotes."""

    inner: EventualSession

    def read(self) -> StoreView:
        seen = self.inner.read()
        yes = {Vote(one.id, m.instance_id, True) for one in seen.votings for m in one.members}
        return replace(seen, votes=frozenset(yes))

    def promote(self, voting: Voting) -> bool:
        write: Any = self.inner._write
        key: Key = ("established",)
        write(key, voting)
        return True


class _LongLease(LeaseMember):
    """Counts its lease from the answer, and some more."""

    def beat(self, properties: Mapping[str, str]) -> Observation:
        seen = super().beat(properties)
        return replace(seen, valid_until=seen.valid_until + 8.0)


class _Silent(EventFlow):
    """Reports the new view without having reported that the old one ends."""

    def observe(
        self, observation: Observation, remotes: Sequence[ClusterView], now: float
    ) -> list[TopologyEvent]:
        events = super().observe(observation, remotes, now)
        return [event for event in events if event.kind is not EventKind.CHANGING]


class _Eager(EventFlow):
    """Does not join changes."""

    def __init__(self) -> None:
        super().__init__(0.0)


class _Trusting(EventFlow):
    """Hands out what is not agreed yet."""

    def observe(
        self, observation: Observation, remotes: Sequence[ClusterView], now: float
    ) -> list[TopologyEvent]:
        return super().observe(replace(observation, settled=True), remotes, now)


class _Hoarding(ViewMailbox):
    """Keeps a view that has ended before it was heard."""

    def post(self, event: TopologyEvent) -> None:
        kept = self._newest
        super().post(event)
        self._newest = event.new or kept


BROKEN: Mapping[str, tuple[str, Build]] = {
    "renews a lease that it has lost": ("lease", Build(session=_RenewsForEver)),
    "relies on its lease for too long": ("lease", Build(lease=_LongLease)),
    "ignores who is deactivating": ("lease", Build(session=_ForgetsTheLeaving)),
    "sorts by id": ("lease", Build(session=_SortsById)),
    "takes all for informed": ("lease", Build(session=_BelievesAll)),
    "writes without a look at its token": ("lease", Build(checks_tokens=False)),
    "sends no CHANGING": ("lease", Build(flow=_Silent)),
    "notifies slow listeners of views that have ended": ("lease", Build(mailbox=_Hoarding)),
    "joins no changes": ("lease", Build(flow=_Eager)),
    "hands out what is not agreed": ("lease", Build(flow=_Trusting)),
    "promotes without unanimity": ("voting", Build(session=_Hasty)),
    "hands out what is not agreed, by votes": ("voting", Build(flow=_Trusting)),
    "sends no CHANGING, by votes": ("slow voting", Build(flow=_Silent)),
}
