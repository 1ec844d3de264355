"""Which announced clusters the topology has, and what is passed on: a path vector's rules."""

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


class Chooser:
    """Gives the best routes; chooses anew, and says what it leaves out, only when there is news.

    It is asked with each heartbeat, and peers may have announced very many clusters. Safe for
    threads.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[Heard, ...], str, tuple[Route, ...]] | None = None
        self._left_out: _LeftOut = {}

    def routes(self, heard: tuple[Heard, ...], own_cluster: str) -> tuple[Route, ...]:
        """Return one route for each foreign cluster, by its id; the same on all instances.

        The shortest path wins; of equally long ones the first by the ids on it; of two tellers of
        one path the one with the newer news. A path that has been through the own cluster is a
        loop. A cluster with an instance that a nearer cluster has too is left out, and so is what
        is too much.
        """
        last = self._last
        if last is not None and last[:2] == (heard, own_cluster):
            return last[2]
        routes, left_out = _chosen(heard, own_cluster)
        if left_out and left_out != self._left_out:
            cluster, reason = min(left_out.items())
            logger.warning(
                "%d clusters are left out of the topology; %s: %s", len(left_out), cluster, reason
            )
        self._left_out, self._last = left_out, (heard, own_cluster, routes)
        return routes


def reported_on(routes: Sequence[Route], own_cluster: str, peer_cluster: str) -> tuple[Route, ...]:
    """Return what to announce to a peer's cluster: nothing that came through it ("": not known)."""
    return tuple(
        Route((own_cluster, *route.path), route.cluster)
        for route in routes
        if peer_cluster not in route.path and len(route.path) < MAX_PATH
    )


def without(routes: Sequence[Route], own: ClusterView) -> tuple[Route, ...]:
    """Return the routes to clusters that have no instance of the own one."""
    return tuple(route for route in routes if not set(route.cluster.ids) & set(own.ids))


_LeftOut = dict[str, str]
"""Why, by the cluster's id."""


def _chosen(heard: Iterable[Heard], own_cluster: str) -> tuple[tuple[Route, ...], _LeftOut]:
    chosen: dict[str, Route] = {}
    instances: set[str] = set()
    left_out: _LeftOut = {}
    for route in _ranked(heard, own_cluster):
        if route.cluster.id in chosen:
            continue
        reason = _misfit(route, len(chosen), instances)
        if reason:
            left_out[route.cluster.id] = reason
        else:
            chosen[route.cluster.id] = route
            instances.update(route.cluster.ids)
    routes = tuple(chosen[cluster] for cluster in sorted(chosen))
    return routes, {cluster: why for cluster, why in left_out.items() if cluster not in chosen}


def _ranked(heard: Iterable[Heard], own_cluster: str) -> list[Route]:
    ranked = sorted(
        (
            (len(route.path), route.path, -one.changed_ms, one.announcement.owner, one.holder),
            route,
        )
        for one in heard
        for route in one.announcement.routes
        if own_cluster not in route.path
    )
    return [route for _, route in ranked]


def _misfit(route: Route, clusters: int, instances: set[str]) -> str:
    """Return why a route can't be chosen beside so many clusters and these instances."""
    ids = set(route.cluster.ids)
    if clusters >= MAX_CLUSTERS - 1:
        return f"there are {MAX_CLUSTERS} clusters at most"
    if len(instances) + len(ids) > MAX_INSTANCES:
        return f"there are {MAX_INSTANCES} remote instances at most"
    shared = ids & instances
    return f"a nearer cluster has its instance {min(shared)} too" if shared else ""
