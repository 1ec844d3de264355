"""What a worker knows of the instances around it: who leads, and what they do jobs of."""

from collections.abc import Callable
from typing import Protocol

from packhorse.jobs.consumers import Consumers, reach_of
from packhorse.topology import properties
from packhorse.topology.own_cluster import OwnCluster
from packhorse.topology.view import TopologyView

Consumes = Callable[[str], bool]
"""Tells whether a topic has a consumer on any instance."""


class Surroundings(Protocol):
    """What is known now; asked before each claim."""

    def leads(self) -> bool:
        """Whether this instance leads those that do jobs, by a view that holds."""
        ...

    def consumes(self) -> Consumes | None:
        """Return what live instances consume; None while that is not known."""
        ...


class Alone:
    """Nothing is known, as in a program that takes no part in a topology: it leads nobody."""

    def leads(self) -> bool:
        """Return false."""
        return False

    def consumes(self) -> Consumes | None:
        """Return None."""
        return None


class InCluster:
    """What the view of the own cluster says, while it holds."""

    def __init__(self, cluster: OwnCluster, consumers: Consumers, duty: str) -> None:
        """Take the registry of this instance, whose announcement may not be in the view yet.

        Who has the duty leads: the first of the instances that do jobs and schedules.
        """
        self._cluster, self._consumers, self._duty = cluster, consumers, duty

    def leads(self) -> bool:
        """Whether this instance leads."""
        holder = self._cluster.holder(self._duty)
        return holder is not None and holder.is_local

    def consumes(self) -> Consumes | None:
        """Return what the instances of the view announce, and what this one does."""
        view = self._cluster.discovery.current_view()
        return None if view is None else announced_in(view, self._consumers)


def announced_in(view: TopologyView, own: Consumers) -> Consumes:
    """Return what the instances of the local cluster consume, the own registry included."""
    told = {one.properties.get(properties.CONSUMERS, "") for one in view.local_cluster.instances}
    reaches = [own.reach(), *(reach_of(announcement) for announcement in sorted(told))]
    return lambda topic: any(reach.covers(topic) for reach in reaches)
