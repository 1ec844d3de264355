"""What the own cluster announces, and where it stores announcements of others."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import packhorse
from packhorse.clock import Clock
from packhorse.db.transactions import writing
from packhorse.topology import announcement_store
from packhorse.topology.announcement_store import AnnouncementReader, Peer
from packhorse.topology.announcements import Announcement, Route
from packhorse.topology.listeners import Listener
from packhorse.topology.patience import PatientPool
from packhorse.topology.routing import Chooser, reported_on, without
from packhorse.topology.view import ClusterView, TopologyView
from packhorse_services.topology.connectors.backoff import (
    Stability,
    interval_of,
    is_fresh,
    validity_of,
)
from packhorse_services.topology.connectors.options import ConnectorConfiguration


class FollowedTopology(Protocol):
    """What connectors ask of the `Discovery`."""

    @property
    def instance_id(self) -> str:
        """The local instance."""
        ...

    def view(self) -> TopologyView | None:
        """Return the last known view."""
        ...

    def add_listener(self, listener: Listener) -> None:
        """Notify it of every change."""
        ...

    def remove_listener(self, listener: Listener) -> None:
        """Notify it no more."""
        ...

    def wake(self) -> None:
        """Look at the topology soon."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterKnowledge:
    """All that there is to announce at a moment: `now`, by the database's clock."""

    now: float
    instance_id: str
    own: ClusterView
    routes: tuple[Route, ...]
    interval_s: float
    """Until the next exchange, as far as this side is concerned."""
    fresh: bool
    created_ms: int

    def announcement(
        self, peer_cluster: str = "", *, loop: bool = False, interval_s: float | None = None
    ) -> Announcement:
        """Return what to announce to a cluster; nothing that came through it, if it is known."""
        return Announcement(
            owner=self.instance_id,
            local_cluster=self.own,
            further=() if loop else reported_on(self.routes, self.own.id, peer_cluster),
            created_ms=self.created_ms,
            server_info=f"packhorse/{packhorse.__version__}",
            loop=loop,
            backoff_interval_s=self.interval_s if interval_s is None else interval_s,
            reset_backoff=self.fresh,
        )


class Knowledge:
    """Shared by the connectors and the routes of a process; safe for threads.

    Everything that asks the database raises `psycopg.Error` or a pool's error when it is away.
    """

    def __init__(
        self,
        topology: FollowedTopology,
        pool: PatientPool,
        settings: ConnectorConfiguration,
        clock: Clock,
    ) -> None:
        self.topology, self.settings, self.clock = topology, settings, clock
        self.pool = pool
        self._reader, self._chooser = AnnouncementReader(), Chooser()
        self._stability = Stability(clock.monotonic())
        self._news: list[Callable[[str], None]] = []

    def when_news(self, listener: Callable[[str], None]) -> None:
        """Call it with a peer's id whenever that peer has announced something new."""
        self._news.append(listener)

    def look(self) -> ClusterKnowledge | None:
        """Return what there is to announce now; None without an own view."""
        view = self.topology.view()
        if view is None:
            return None
        own = view.local_cluster
        with writing(self.pool.connection) as connection:
            live = self._reader.read(connection)
        routes = without(self._chooser.routes(live.heard, own.id), own)
        content = Announcement("", own, routes).content()
        stable_s = self._stability.observe(content, self.clock.monotonic())
        return ClusterKnowledge(
            live.now,
            self.topology.instance_id,
            own,
            routes,
            interval_of(self.settings, stable_s),
            is_fresh(self.settings, stable_s),
            self.clock.wall_ms(),
        )

    def hear(
        self, announcement: Announcement, *, holder: str, address: str, backoff_s: float
    ) -> None:
        """Keep what a peer has announced until it is late by a time-out. Raises `TooManyPeers`."""
        valid_s = validity_of(self.settings, backoff_s)
        due = replace(announcement, backoff_interval_s=backoff_s)
        with self.pool.connection() as connection:
            news = announcement_store.keep(connection, due, holder, address, valid_s)
        if news:
            self._report(announcement.owner)

    def forget(self, owner: str, *, holder: str) -> bool:
        """Keep it no longer; return whether there was something."""
        with self.pool.connection() as connection:
            gone = announcement_store.forget(connection, owner, holder)
        if gone:
            self._report(owner)
        return gone

    def peers(self) -> list[Peer]:
        """Return who has announced what holds now, to any instance of the cluster."""
        with self.pool.connection() as connection:
            return announcement_store.peers(connection)

    def _report(self, peer: str) -> None:
        self.topology.wake()
        for listener in self._news:
            listener(peer)
