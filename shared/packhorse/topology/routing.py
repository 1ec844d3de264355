"""Which of all announced clusters the topology has, and what is told on: a path vector's rules."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packhorse.topology.announcement_schema import MAX_CLUSTERS, MAX_INSTANCES, MAX_PATH
from packhorse.topology.announcements import Announcement, Route
from packhorse.topology.view import ClusterView

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """An announcement that still holds. `holder` is the instance whose connector it came by.

    It is "" for one that the peer's connector has sent. `changed_ms` is when its content last
    changed, by the own database's clock.
    """

    announcement: Announcement
    holder: str
    changed_ms: int


def best_routes(heard: Iterable[Heard], own_cluster: str) -> tuple[Route, ...]:
    """Return one route for each foreign cluster, by the cluster's id; the same on all instances.

    The shortest path wins; of equally long ones the first by the ids on it; of two tellers of one
    path the one with the newer news. A path that has been through the own cluster is a loop. A
    cluster with an instance that a nearer cluster has too is left out, and so is what is too much.
    """
    ranked = sorted(
        (
            (len(route.path), route.path, -one.changed_ms, one.announcement.owner, one.holder),
            route,
        )
        for one in heard
        for route in one.announcement.routes
        if own_cluster not in route.path
    )
    chosen: dict[str, Route] = {}
    instances: set[str] = set()
    for _, route in ranked:
        if route.cluster.id not in chosen and _fits(route, len(chosen), instances):
            chosen[route.cluster.id] = route
            instances.update(route.cluster.ids)
    return tuple(chosen[cluster] for cluster in sorted(chosen))


def told_on(routes: Sequence[Route], own_cluster: str, peer_cluster: str) -> tuple[Route, ...]:
    """Return what to tell a peer's cluster: nothing that came through it ("": not known)."""
    return tuple(
        Route((own_cluster, *route.path), route.cluster)
        for route in routes
        if peer_cluster not in route.path and len(route.path) < MAX_PATH
    )


def without(routes: Sequence[Route], own: ClusterView) -> tuple[Route, ...]:
    """Return the routes to clusters that have no instance of the own one."""
    return tuple(route for route in routes if not set(route.cluster.ids) & set(own.ids))


def _fits(route: Route, clusters: int, instances: set[str]) -> bool:
    ids = set(route.cluster.ids)
    if clusters >= MAX_CLUSTERS - 1 or len(instances) + len(ids) > MAX_INSTANCES:
        logger.warning("a cluster is too much", extra={"cluster": route.cluster.id})
        return False
    if shared := ids & instances:
        logger.warning(
            "a cluster has an instance of a nearer one",
            extra={"cluster": route.cluster.id, "instance": min(shared)},
        )
        return False
    return True
