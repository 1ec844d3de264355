"""The documents of the topology API, and how a view becomes one."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, Field

from packhorse.runtime.validation import StrictBody
from packhorse.topology.diff import TopologyDiff
from packhorse.topology.events import TopologyEvent
from packhorse.topology.view import ClusterView, InstanceDescription, TopologyView
from packhorse_services.topology.connectors.states import ConnectorState

_MOST_IDS = 200


class InstanceDocument(BaseModel):
    """One packhorse process."""

    id: str = Field(description="Stays the same when the process starts again")
    cluster_id: str
    leader: bool = Field(description="It leads its cluster")
    local: bool = Field(description="It is the one that answers")
    properties: dict[str, str]


class ClusterDocument(BaseModel):
    """The live instances that share one database."""

    id: str = Field(description="Stays the same for as long as the database does")
    local: bool
    leader: str = Field(description="The id of the instance that leads")
    instances: list[InstanceDocument] = Field(
        description="In their stable order: the leader first, a newcomer last"
    )


class TopologyDocument(BaseModel):
    """All clusters that the instance knows of, its own first."""

    current: bool = Field(
        description="False while the topology is changing, and before the first view: then "
        "nobody may rely on what is shown"
    )
    local_instance: str
    clusters: list[ClusterDocument]


class ClusterViewDocument(BaseModel):
    """The local cluster by small numbers, in the form of discovery-lite."""

    seq: int = Field(description="Grows with every change of the three lists")
    final: bool = Field(description="False until what a leaving instance left is dealt with")
    id: str
    me: int | None = Field(description="Null while the instance that answers takes no part")
    active: list[int]
    deactivating: list[int]
    inactive: list[int]
    instances: dict[str, str] = Field(
        description="Ids by number, of the active and the deactivating instances"
    )


class ConnectorDocument(BaseModel):
    """A connection to another cluster: `out` is one of ours, `in` one that a peer has opened."""

    direction: Literal["in", "out"]
    state: str = Field(description="WAITING, CONNECTED, STANDBY, LOOP, FAILED")
    url: str = Field(description="Without user and password; empty for incoming ones")
    holder: str = Field(description="The instance of this cluster that runs an outgoing one")
    instance_id: str = Field(description="The peer's; empty while it is not known")
    cluster_id: str
    address: str = Field(description="Where an incoming one comes from")
    last_exchange: datetime | None
    next_exchange: datetime | None = Field(description="When it is due; in the past when late")
    interval_s: float = Field(description="From one exchange to the next, with the back-off")
    reason: str = Field(description="Why it is not CONNECTED")


class ConnectorList(BaseModel):
    """The connectors of the local cluster."""

    connectors: list[ConnectorDocument]


class PropertyBody(StrictBody):
    """What an instance shall announce under a name."""

    value: str = Field(description="At most 4096 bytes of UTF-8, without U+0000")


class PropertyDocument(BaseModel):
    """A property of the instance that answers; others see it within one heartbeat."""

    name: str
    value: str


class VoteDocument(BaseModel):
    """What one member thinks of a voting; null while it has not voted."""

    instance_id: str
    vote: bool | None


class VotingDocument(BaseModel):
    """An attempt to agree on the members of the cluster."""

    id: str
    initiator: str
    votes: list[VoteDocument]


class VotingList(BaseModel):
    """The votings that are under way, and the view that the last one established."""

    established: str | None = Field(description="The id of the established view")
    previous: str | None
    votings: list[VotingDocument]


class LeaderChangeDocument(BaseModel):
    """Another instance leads a cluster; null where the cluster was not there, or is gone."""

    cluster_id: str
    old: str | None
    new: str | None


class TopologyNews(BaseModel):
    """The data of INIT, CHANGING, CHANGED and PROPERTIES_CHANGED."""

    time: datetime = Field(description="When it was sent, by the clock of the instance")
    topology: TopologyDocument | None = Field(description="Null for CHANGING")
    added: list[str] = Field(default=[], description="Ids of instances that have come")
    removed: list[str] = Field(default=[], description="Ids of instances that have gone")
    leaders: list[LeaderChangeDocument] = []
    changed: list[str] = Field(default=[], description="Instances with other properties")


class ChangeDocument(BaseModel):
    """A change of the topology, without the views; at most 200 ids of each kind."""

    time: datetime = Field(description="By the clock of the instance")
    kind: str = Field(description="INIT, CHANGING, CHANGED, PROPERTIES_CHANGED")
    added: list[str] = Field(description="Ids of instances that have come")
    removed: list[str] = Field(description="Ids of instances that have gone")
    leaders: list[LeaderChangeDocument]
    changed: list[str] = Field(description="Instances with other properties")


class HistoryDocument(BaseModel):
    """The newest changes that the instance has seen since it started, the newest first."""

    trouble: str = Field(description="Why its last heartbeat failed; empty when it did not")
    changes: list[ChangeDocument]


class GapNews(BaseModel):
    """Events behind the last id that was seen are not known any more; an INIT follows."""

    reason: Literal["FORGOTTEN", "ANOTHER_PROCESS"]


def topology_document(
    view: TopologyView | None, local_instance: str, *, current: bool
) -> TopologyDocument:
    """Return the document of a view; without one it has no clusters."""
    clusters = view.clusters if view is not None else ()
    return TopologyDocument(
        current=current and view is not None,
        local_instance=local_instance,
        clusters=[
            cluster_document(cluster, local=view is not None and cluster is view.local_cluster)
            for cluster in clusters
        ],
    )


def cluster_document(cluster: ClusterView, *, local: bool) -> ClusterDocument:
    """Return the document of one cluster."""
    return ClusterDocument(
        id=cluster.id,
        local=local,
        leader=cluster.leader.id,
        instances=[instance_document(one) for one in cluster.instances],
    )


def instance_document(instance: InstanceDescription) -> InstanceDocument:
    """Return the document of one instance."""
    return InstanceDocument(
        id=instance.id,
        cluster_id=instance.cluster_id,
        leader=instance.is_leader,
        local=instance.is_local,
        properties=_sorted(instance.properties),
    )


def change_document(event: TopologyEvent, at_ms: int) -> ChangeDocument:
    """Return the document of an event, without its views."""
    diff = TopologyDiff(event.old if event.new else None, event.new)
    return ChangeDocument(
        time=_time(at_ms),
        kind=event.kind.value,
        added=[one.id for one in diff.added()[:_MOST_IDS]],
        removed=[one.id for one in diff.removed()[:_MOST_IDS]],
        leaders=[LeaderChangeDocument(**asdict(one)) for one in diff.leader_changes[:_MOST_IDS]],
        changed=[one.instance.id for one in diff.property_changes[:_MOST_IDS]],
    )


def connector_document(state: ConnectorState, now_ms: int) -> ConnectorDocument:
    """Return the document of a connector; times are whole seconds by the local wall clock."""
    due = state.next_exchange_in_s
    return ConnectorDocument(
        direction=state.direction,
        state=state.state.value,
        url=state.url,
        holder=state.holder,
        instance_id=state.instance_id,
        cluster_id=state.cluster_id,
        address=state.address,
        last_exchange=None if state.last_exchange_ms is None else _time(state.last_exchange_ms),
        next_exchange=None if due is None else _time(now_ms + due * 1000),
        interval_s=round(state.interval_s, 1),
        reason=state.reason,
    )


def _time(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(round(milliseconds / 1000), UTC)


def _sorted(properties: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(properties.items()))
