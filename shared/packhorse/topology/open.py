"""How an instance takes part in the topology, and by which store."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packhorse.clock import Clock
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.topology.discovery import Discovery
from packhorse.topology.events import MIN_EVENT_DELAY_S
from packhorse.topology.identity import instance_id
from packhorse.topology.lease.judgement import LONGEST_INTERVAL
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.membership import Membership
from packhorse.topology.participation import RemoteClusters
from packhorse.topology.properties import PropertyProvider
from packhorse.topology.remote_clusters import SqlRemoteClusters
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.sql import SqlVotingStore
from packhorse.topology.voting.times import VotingTimes

Store = Literal["lease", "voting"]

_DEFAULTS: dict[Store, tuple[float, float]] = {"lease": (2.0, 10.0), "voting": (15.0, 20.0)}


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """All instances of a cluster must have the same store, times and order of prefixes.

    Raises `InvalidConfiguration` for times that can't work.
    """

    instance_id: str = ""
    """The persistent id; empty: from the file, or a new one for each start."""
    instance_id_file: Path | None = None
    store: Store = "lease"
    interval_s: float | None = None
    """From one heartbeat to the next; None: 2 s with `lease`, 15 s with `voting`."""
    timeout_s: float | None = None
    """Without a heartbeat for this long, an instance is dead; None: 10 s, or 20 s."""
    min_event_delay_s: float = MIN_EVENT_DELAY_S
    leader_prefix: str = "1"
    """With `voting`, instances with a lower prefix lead and come first."""

    def __post_init__(self) -> None:
        if self.store not in _DEFAULTS:
            raise InvalidConfiguration(f"the topology's store is lease or voting, not {self.store}")
        interval, timeout = self.times
        if not 0 < interval < timeout <= 86_400:
            raise InvalidConfiguration(
                f"the heartbeat's interval ({interval} s) must be shorter than its time-out "
                f"({timeout} s), and that at most a day"
            )
        if self.store == "lease" and interval > timeout * LONGEST_INTERVAL:
            raise InvalidConfiguration(
                f"with leases the heartbeat's interval ({interval} s) may be {LONGEST_INTERVAL} of "
                f"its time-out ({timeout} s) at most"
            )
        if not 0 <= self.min_event_delay_s <= timeout:
            raise InvalidConfiguration(
                "the least delay of events must be between 0 and the heartbeat's time-out"
            )

    @property
    def times(self) -> tuple[float, float]:
        """Interval and time-out in seconds, with the store's defaults."""
        interval, timeout = _DEFAULTS[self.store]
        return (
            interval if self.interval_s is None else self.interval_s,
            timeout if self.timeout_s is None else self.timeout_s,
        )


def open_discovery(
    url: str,
    settings: TopologySettings,
    providers: Iterable[PropertyProvider] = (),
    *,
    remotes: RemoteClusters | None = None,
    clock: Clock | None = None,
) -> Discovery:
    """Return the component that takes part in the cluster of a database; it is not started.

    Nothing connects before the start. `remotes` is by default what the cluster's connectors have
    heard. Raises `InvalidConfiguration` when the id or its file can't be used.
    """
    return Discovery(
        _membership(url, settings, clock),
        providers=providers,
        remotes=remotes or SqlRemoteClusters(url),
        min_event_delay_s=settings.min_event_delay_s,
        clock=clock,
    )


def _membership(url: str, settings: TopologySettings, clock: Clock | None) -> Membership:
    own_id = instance_id(settings.instance_id, settings.instance_id_file)
    interval_s, timeout_s = settings.times
    if settings.store == "lease":
        store = SqlLeaseStore(url, patience_s=min(4.0, timeout_s * 0.4))
        return LeaseMember(store, own_id, interval_s=interval_s, lease_s=timeout_s, clock=clock)
    times = VotingTimes(interval_s, timeout_s)
    votes = SqlVotingStore(url, own_id)
    return VotingMember(votes, own_id, times=times, prefix=settings.leader_prefix, clock=clock)
