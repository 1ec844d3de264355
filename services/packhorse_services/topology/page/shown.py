"""What the topology page shows: everything is text from elsewhere, and bounded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import psycopg

from packhorse.errors import Transient
from packhorse.topology import properties
from packhorse.topology.history import TopologyChange
from packhorse.topology.view import ClusterView, InstanceDescription
from packhorse_services.topology.http.parts import TopologyServices
from packhorse_services.topology.http.schemas import (
    ClusterViewDocument,
    ConnectorDocument,
    VotingList,
    connector_document,
)

Result = TypeVar("Result")

_MOST_INSTANCES = 1_000
_MOST_CHANGES = 20
_OWN_COLUMNS = (properties.ROLE, properties.AGENT, properties.ENDPOINT, properties.VERSION)


@dataclass(frozen=True, slots=True)
class ShownInstance:
    """A row of a cluster's table."""

    place: int
    described: InstanceDescription
    role: str
    agent: str
    endpoint: str
    version: str
    others: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """A cluster with the instances that the filter lets through."""

    id: str
    local: bool
    size: int
    instances: Sequence[ShownInstance]


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One of the last changes."""

    number: int
    at: datetime
    kind: str
    text: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopologyPageContent:
    """The whole of it."""

    instance_id: str
    current: bool
    known: bool
    trouble: str
    clusters: Sequence[ShownCluster]
    left_out: int
    connectors: Sequence[ConnectorDocument]
    changes: Sequence[ShownChange]
    cluster_view: ClusterViewDocument | None = None
    votings: VotingList | None = None
    unavailable: Sequence[str] = field(default=())


def content(parts: TopologyServices, find: str = "") -> TopologyPageContent:
    """Gather it; called in a thread, since the store may be asked."""
    discovery = parts.discovery
    view, current = discovery.view(), discovery.is_current()
    clusters = () if view is None else view.clusters
    shown, left_out = _clusters(clusters, find.casefold())
    unavailable: list[str] = []
    now_ms = parts.clock.wall_ms()
    return TopologyPageContent(
        instance_id=discovery.instance_id,
        current=current,
        known=view is not None,
        trouble=discovery.trouble(),
        clusters=shown,
        left_out=left_out,
        connectors=[
            connector_document(one, now_ms)
            for one in _requested(parts.connectors, "connectors", unavailable) or ()
        ],
        changes=[_change(one) for one in reversed(discovery.history()[-_MOST_CHANGES:])],
        cluster_view=_requested(parts.cluster_view, "cluster view", unavailable),
        votings=_requested(
            parts.votings.votings if parts.votings else None, "votings", unavailable
        ),
        unavailable=unavailable,
    )


def _clusters(clusters: Sequence[ClusterView], find: str) -> tuple[list[ShownCluster], int]:
    room, left_out, shown = _MOST_INSTANCES, 0, []
    for number, cluster in enumerate(clusters):
        found = [
            _instance(place, one)
            for place, one in enumerate(cluster.instances, 1)
            if _matches(one, find)
        ]
        left_out += max(0, len(found) - room)
        local = number == 0
        shown.append(ShownCluster(cluster.id, local, len(cluster.instances), found[:room]))
        room -= len(shown[-1].instances)
    return shown, left_out


def _matches(instance: InstanceDescription, find: str) -> bool:
    texts = (instance.id, *instance.properties, *instance.properties.values())
    return not find or any(find in text.casefold() for text in texts)


def _instance(place: int, instance: InstanceDescription) -> ShownInstance:
    given = instance.properties
    role, agent, endpoint, version = (given.get(name, "") for name in _OWN_COLUMNS)
    others = {name: value for name, value in sorted(given.items()) if name not in _OWN_COLUMNS}
    return ShownInstance(place, instance, role, agent, endpoint, version, others)


def _change(change: TopologyChange) -> ShownChange:
    text = [f"{one} came" for one in change.added]
    text += [f"{one} went" for one in change.removed]
    text += [f"{one.new or 'nobody'} leads {one.cluster_id}" for one in change.leaders]
    text += [f"{name} of {instance}" for instance, name in change.properties]
    at = datetime.fromtimestamp(change.at_ms / 1000, UTC)
    return ShownChange(change.number, at, change.kind.value, text)


def _requested(
    ask: Callable[[], Result] | None, what: str, unavailable: list[str]
) -> Result | None:
    """Ask, or note that it is not known now: the rest is shown all the same."""
    if ask is None:
        return None
    try:
        return ask()
    except (Transient, psycopg.Error):
        unavailable.append(what)
        return None
