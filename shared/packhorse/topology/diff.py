"""What has changed from one view of the topology to the next."""

from collections.abc import Mapping
from dataclasses import dataclass

from packhorse.topology.view import InstanceDescription, TopologyView

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """One instance of both views whose properties differ; the names are sorted."""

    instance: InstanceDescription
    """As the new view has it."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Another instance leads a cluster; None where the cluster was not there, or is gone."""

    cluster_id: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class TopologyDiff:
    """Compares two views; None stands for a topology without instances.

    An instance is the same when its id and its cluster are. All answers are in the views' order.
    """

    old: TopologyView | None
    new: TopologyView | None

    def added(self) -> tuple[InstanceDescription, ...]:
        """Return the instances that only the new view has."""
        return _missing(_instances(self.new), _instances(self.old))

    def removed(self) -> tuple[InstanceDescription, ...]:
        """Return the instances that only the old view has, as it has them."""
        return _missing(_instances(self.old), _instances(self.new))

    @property
    def property_changes(self) -> tuple[PropertyChange, ...]:
        """Return the instances of both views whose properties differ."""
        old = _instances(self.old)
        pairs = ((old[key], one) for key, one in _instances(self.new).items() if key in old)
        return tuple(
            _property_change(before, after)
            for before, after in pairs
            if before.properties != after.properties
        )

    @property
    def leader_changes(self) -> tuple[LeaderChange, ...]:
        """Return the clusters that another instance leads, those of the new view first."""
        old, new = _leaders(self.old), _leaders(self.new)
        return tuple(
            LeaderChange(cluster, old.get(cluster), new.get(cluster))
            for cluster in {**new, **old}
            if old.get(cluster) != new.get(cluster)
        )


def _instances(view: TopologyView | None) -> Mapping[_Key, InstanceDescription]:
    return {} if view is None else {(one.cluster_id, one.id): one for one in view.instances}


def _missing(
    these: Mapping[_Key, InstanceDescription], others: Mapping[_Key, InstanceDescription]
) -> tuple[InstanceDescription, ...]:
    return tuple(one for key, one in these.items() if key not in others)


def _property_change(old: InstanceDescription, new: InstanceDescription) -> PropertyChange:
    before, after = old.properties, new.properties
    return PropertyChange(
        new,
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(sorted(n for n in before.keys() & after.keys() if before[n] != after[n])),
    )


def _leaders(view: TopologyView | None) -> dict[str, str]:
    return {} if view is None else {cluster.id: cluster.leader.id for cluster in view.clusters}
