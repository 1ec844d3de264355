"""A topology that a test writes itself, behind a real `Discovery`; and the service over it."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from packhorse.clock import SystemClock
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.runtime.principal import Principal
from packhorse.topology.discovery import Discovery
from packhorse.topology.membership import Observation, StoreUnavailable
from packhorse.topology.properties import FixedProperties
from packhorse.topology.view import ClusterView, InstanceDescription
from packhorse_services.topology.app import topology_service
from packhorse_services.topology.connectors.states import ConnectorState
from packhorse_services.topology.http.event_feed import Feed
from packhorse_services.topology.http.parts import TopologyServices
from packhorse_services.topology.http.schemas import ClusterViewDocument, VotingList
from tests.harness.waiting import eventually

ME = "me"
CLUSTER = "cluster-1"
NUMBERS = ClusterViewDocument(
    seq=7,
    final=True,
    id=CLUSTER,
    me=1,
    active=[1, 2],
    deactivating=[],
    inactive=[3],
    instances={"1": ME, "2": "other"},
)
"""A cluster as a voting store tells of it."""


def cluster(
    *ids: str,
    name: str = CLUSTER,
    local: str = "",
    properties: Mapping[str, Mapping[str, str]] | None = None,
) -> ClusterView:
    """Return a view of a cluster whose first instance leads."""
    given = properties or {}
    return ClusterView(
        name,
        tuple(
            InstanceDescription(one, name, place == 0, one == local, given.get(one, {}))
            for place, one in enumerate(ids)
        ),
    )


class ScriptedMembership:
    """Observes what the test says; the own instance has the properties that it announces."""

    interval_s = 0.02

    def __init__(self, *others: str) -> None:
        self.instance_id = ME
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._ids: tuple[str, ...] = (ME, *others)
        self._properties: Mapping[str, Mapping[str, str]] = {}
        self._revision, self._settled, self._away = 1, True, False

    def become(self, *ids: str) -> None:
        """Let the cluster have these instances, the leader first."""
        with self._lock:
            self._ids = ids
            self._revision += 1
        self.wake()

    def describe(self, instance_id: str, **properties: str) -> None:
        """Give another instance these properties."""
        with self._lock:
            self._properties = {**self._properties, instance_id: properties}
        self.wake()

    def set_settled(self, settled: bool) -> None:
        """Say whether all have agreed."""
        with self._lock:
            self._settled = settled
            self._revision += not settled
        self.wake()

    def go_away(self, away: bool) -> None:
        """Let the store be away."""
        self._away = away
        self.wake()

    def beat(self, properties: Mapping[str, str]) -> Observation:
        if self._away:
            raise StoreUnavailable("the database is away")
        with self._lock:
            known = {**self._properties, ME: properties}
            view = cluster(*self._ids, local=ME, properties=known)
            return Observation(view, str(self._revision), self._settled, time.monotonic() + 60)

    def acknowledge(self, revision: str) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken

    def wake(self) -> None:
        self._woken.set()

    def leave(self) -> None:
        pass


CALLERS = {
    "admin": Principal("admin", frozenset({"admin"})),
    "viewer": Principal("viewer", frozenset({"queues:read"})),
    "editor": Principal("editor", frozenset({"distribute"})),
}


class Callers:
    """Tokens that are the names of the callers; a test may take one back."""

    def __init__(self) -> None:
        self.known = dict(CALLERS)

    async def principal(self, token: str) -> Principal | None:
        return self.known.get(token)


@dataclass
class ScriptedRemotes:
    """Other clusters that the test writes."""

    views: Sequence[ClusterView] = ()

    def is_fresh(self) -> bool:
        return False

    def clusters(self) -> Sequence[ClusterView]:
        return self.views


@dataclass
class Scripted:
    """A topology service over a scripted topology."""

    membership: ScriptedMembership
    remotes: ScriptedRemotes
    feed: Feed
    discovery: Discovery
    service: Service
    callers: Callers
    connectors: list[ConnectorState] = field(default_factory=list)

    def until_current(self) -> None:
        eventually(self.discovery.is_current, what="a view that holds")


@dataclass
class NoVotings:
    """Votings that are none."""

    begun: int = 0

    def votings(self) -> VotingList:
        return VotingList(established="view-1", previous=None, votings=[])

    def start_voting(self) -> None:
        self.begun += 1


def scripted(
    *others: str,
    own: Mapping[str, str] | None = None,
    cluster_view: ClusterViewDocument | None = None,
    votings: NoVotings | None = None,
    max_streams: int = 8,
) -> Scripted:
    """Return a service that is put together and not started."""
    membership, remotes, callers = ScriptedMembership(*others), ScriptedRemotes(), Callers()
    connectors: list[ConnectorState] = []
    clock = SystemClock()
    discovery = Discovery(
        membership,
        providers=[FixedProperties({"packhorse.role": "topology", **(own or {})})],
        remotes=remotes,
        min_event_delay_s=0.05,
    )
    feed = Feed(ME, clock, max_streams=max_streams)
    parts = TopologyServices(
        discovery,
        feed,
        clock,
        lambda: connectors,
        lambda: None,
        None if cluster_view is None else lambda: cluster_view,
        votings,
    )
    service = topology_service(parts, Authenticator(callers))
    return Scripted(membership, remotes, feed, discovery, service, callers, connectors)


@contextmanager
def running(made: Scripted) -> Iterator[Scripted]:
    """Run the service's components, without HTTP."""
    with Lifecycle(made.service.components):
        made.until_current()
        yield made
