"""What an instance knows of the topology at one moment: values that never change."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class InstanceDescription:
    """One packhorse process; `id` stays the same when it starts again."""

    id: str
    cluster_id: str
    is_leader: bool = False
    is_local: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The live instances of one cluster, those that share a database, in their stable order.

    A newcomer is last; the others keep their place or move up. The first is the leader; there is
    one in every cluster. `id` stays the same for as long as the database does.
    """

    id: str
    instances: tuple[InstanceDescription, ...]

    @property
    def leader(self) -> InstanceDescription:
        """The one instance that leads."""
        (leader,) = (instance for instance in self.instances if instance.is_leader)
        return leader

    @property
    def ids(self) -> tuple[str, ...]:
        """The instances' ids in their order."""
        return tuple(instance.id for instance in self.instances)


@dataclass(frozen=True, slots=True)
class TopologyView:
    """All clusters that the local instance knows of; its own is the first.

    A view is a snapshot: whether it still holds is asked of the `Discovery` that gave it.
    """

    local_cluster: ClusterView
    remote_clusters: tuple[ClusterView, ...] = ()

    @property
    def clusters(self) -> tuple[ClusterView, ...]:
        """All clusters, the local one first, the others by their id."""
        return (self.local_cluster, *self.remote_clusters)

    @property
    def local_instance(self) -> InstanceDescription:
        """The instance that asks."""
        (local,) = (one for one in self.local_cluster.instances if one.is_local)
        return local

    @property
    def instances(self) -> tuple[InstanceDescription, ...]:
        """All instances, cluster by cluster."""
        return tuple(instance for cluster in self.clusters for instance in cluster.instances)

    def find(self, accepts: Callable[[InstanceDescription], bool]) -> Iterator[InstanceDescription]:
        """Yield the instances that a filter accepts, in their order."""
        return filter(accepts, self.instances)
