"""What connectors send: the clusters that the sender knows of, and how it knows them.

Each cluster comes with the path that the news has taken (a path vector): whoever finds its own
cluster in a path leaves that entry out, so that no ring keeps a dead cluster alive.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhorse.runtime.strict_json import json_of
from packhorse.topology.announcement_schema import (
    MAX_CLUSTERS,
    MAX_INSTANCES,
    MAX_PATH,
    InvalidAnnouncement,
    WireAnnouncement,
    WireCluster,
    checked,
)
from packhorse.topology.view import ClusterView, InstanceDescription

__all__ = ["Announcement", "InvalidAnnouncement", "Route", "decode", "decode_content", "encode"]

PROTOCOL_VERSION = 1

MAX_BYTES = 1024 * 1024
"""Of one announcement's JSON."""

MAX_TOKENS = 100_000
"""Commas and opening brackets in it, each of which may cost far more memory than its byte."""

_FRAME = 16  # what the list of further clusters adds to the rest

Path = tuple[str, ...]
"""Ids of clusters: first the one that announces, last the one that is announced."""


@dataclass(frozen=True, slots=True)
class Route:
    """A cluster and the path on which it was heard of."""

    path: Path
    cluster: ClusterView


@dataclass(frozen=True, slots=True)
class Announcement:
    """One side of an exchange. `further` are the clusters beyond the sender's own."""

    owner: str
    """Id of the instance that announces; one of the local cluster's."""
    local_cluster: ClusterView
    further: tuple[Route, ...] = ()
    created_ms: int = 0
    """Milliseconds since 1970 by the sender's clock, for display only."""
    server_info: str = ""
    loop: bool = False
    """The connector leads back into the cluster that it starts from."""
    backoff_interval_s: float = 0.0
    """The sender expects the next exchange within that many seconds."""
    reset_backoff: bool = False
    """The sender has changed lately: the receiver shall exchange at its shortest interval."""

    @property
    def routes(self) -> tuple[Route, ...]:
        """All clusters with their paths, the sender's own first."""
        return (Route((self.local_cluster.id,), self.local_cluster), *self.further)

    def content(self) -> str:
        """Return as JSON what the topology depends on: the same text for the same clusters."""
        further = [_route_json(route) for route in self.further]
        return _text({"local_cluster": _cluster_json(self.local_cluster), "clusters": further})


def encode(announcement: Announcement, limit: int = MAX_BYTES) -> bytes:
    """Return the JSON to send, of `limit` bytes and as many tokens as `decode` takes.

    The farthest clusters are left out if need be: one that is too much must not cost the others.
    """
    further = sorted(announcement.further, key=lambda route: (len(route.path), route.path))
    head = {
        "protocol_version": PROTOCOL_VERSION,
        "owner": announcement.owner,
        "created_ms": announcement.created_ms,
        "server_info": announcement.server_info,
        "loop": announcement.loop,
        "backoff_interval_s": announcement.backoff_interval_s,
        "reset_backoff": announcement.reset_backoff,
        "local_cluster": _cluster_json(announcement.local_cluster),
    }
    reported = _fitting(announcement, further, _text(head).encode(), limit)
    return _text({**head, "clusters": reported}).encode()


def decode(body: bytes) -> Announcement:
    """Return what a peer has sent. Raises `InvalidAnnouncement` with the first reason found."""
    return _announcement(checked(WireAnnouncement, _parsed(body)))


def decode_content(text: str, owner: str) -> Announcement:
    """Return what `Announcement.content` gave, with nothing else known of the exchange."""
    value = {**_parsed(text.encode()), "protocol_version": PROTOCOL_VERSION, "owner": owner}
    return _announcement(checked(WireAnnouncement, value))


def _parsed(body: bytes) -> Any:
    if len(body) > MAX_BYTES:
        raise InvalidAnnouncement(f"an announcement has at most {MAX_BYTES} bytes")
    if _tokens(body) > MAX_TOKENS:
        raise InvalidAnnouncement("an announcement has not so many members and elements")
    try:
        return json_of(body.decode())
    except RecursionError:
        raise InvalidAnnouncement("the JSON is nested too deep") from None
    except ValueError as error:
        raise InvalidAnnouncement(f"no JSON: {str(error)[:200]}") from None


def _announcement(wire: WireAnnouncement) -> Announcement:
    announcement = Announcement(
        owner=wire.owner,
        local_cluster=_cluster(wire.local_cluster),
        further=tuple(Route(tuple(one.path), _cluster(one)) for one in wire.clusters),
        created_ms=wire.created_ms,
        server_info=wire.server_info,
        loop=wire.loop,
        backoff_interval_s=wire.backoff_interval_s,
        reset_backoff=wire.reset_backoff,
    )
    _check(announcement)
    return announcement


def _check(announcement: Announcement) -> None:
    clusters = [route.cluster for route in announcement.routes]
    _refuse_repeated("cluster", [cluster.id for cluster in clusters])
    ids = [instance.id for cluster in clusters for instance in cluster.instances]
    if len(ids) > MAX_INSTANCES:
        raise InvalidAnnouncement(f"at most {MAX_INSTANCES} instances are taken, not {len(ids)}")
    _refuse_repeated("instance", ids)
    for cluster in clusters:
        if sum(instance.is_leader for instance in cluster.instances) != 1:
            raise InvalidAnnouncement(f"cluster {cluster.id} has not exactly one leader")
    if announcement.owner not in announcement.local_cluster.ids:
        raise InvalidAnnouncement("the owner is no instance of the cluster that it announces")
    for route in announcement.further:
        _check_path(route, announcement.local_cluster.id)


def _refuse_repeated(what: str, ids: Sequence[str]) -> None:
    if len(set(ids)) != len(ids):
        raise InvalidAnnouncement(f"one {what} is listed twice")


def _check_path(route: Route, sender: str) -> None:
    path = route.path
    if path[0] != sender or path[-1] != route.cluster.id or len(path) < 2:
        raise InvalidAnnouncement("a path leads from the sender's cluster to the one announced")
    if len(set(path)) != len(path):
        raise InvalidAnnouncement("a path is a loop")


def _cluster(wire: WireCluster) -> ClusterView:
    return ClusterView(
        wire.id,
        tuple(
            InstanceDescription(one.id, wire.id, is_leader=one.leader, properties=one.properties)
            for one in wire.instances
        ),
    )


def _cluster_json(cluster: ClusterView) -> dict[str, Any]:
    return {
        "id": cluster.id,
        "instances": [
            {
                "id": instance.id,
                "leader": instance.is_leader,
                "properties": dict(sorted(instance.properties.items())),
            }
            for instance in cluster.instances
        ],
    }


def _route_json(route: Route) -> dict[str, Any]:
    return {**_cluster_json(route.cluster), "path": list(route.path)}


def _fitting(
    announcement: Announcement, nearest_first: Sequence[Route], head: bytes, limit: int
) -> list[Mapping[str, Any]]:
    reported: list[Mapping[str, Any]] = []
    room, tokens = limit - len(head) - _FRAME, MAX_TOKENS - _tokens(head) - _FRAME
    instances = MAX_INSTANCES - len(announcement.local_cluster.instances)
    for route in nearest_first[: MAX_CLUSTERS - 1]:
        found = _route_json(route)
        written = _text(found).encode()
        room -= len(written) + 1
        tokens -= _tokens(written) + 1
        instances -= len(route.cluster.instances)
        if min(room, tokens, instances) < 0 or len(route.path) > MAX_PATH:
            break
        reported.append(found)
    return reported


def _tokens(body: bytes) -> int:
    return sum(body.count(mark) for mark in (b"{", b"[", b","))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
