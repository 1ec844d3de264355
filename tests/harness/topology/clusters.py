"""Clusters that connectors join, in the test's process: real HTTP, real databases."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import uvicorn
from fastapi import FastAPI

from packhorse.clock import Clock
from packhorse.runtime.auth import Authenticator, Principal
from packhorse.runtime.connection import BoundedProtocol
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.readiness import Readiness
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.listeners import Listener
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.open import SqlRemoteClusters
from packhorse.topology.view import ClusterView, InstanceDescription, TopologyView
from packhorse_services.topology.assembly import assemble_connectors
from packhorse_services.topology.connectors.options import ConnectorConfiguration
from packhorse_services.topology.connectors.states import ConnectorPhase, ConnectorState
from tests.harness.waiting import eventually

SECRET = "a shared key of at least 32 bytes, for tests"
FAST: dict[str, Any] = {
    "interval_s": 0.2,
    "timeout_s": 5.0,
    "connect_timeout_s": 1.0,
    "read_timeout_s": 60.0,  # a machine that is busy fails no exchange
    "shared_key": SECRET,
}


def cluster(name: str, *instances: str, **properties: str) -> ClusterView:
    """A cluster whose first instance leads; by default it has one, named after it."""
    return ClusterView(
        name,
        tuple(
            InstanceDescription(one, name, is_leader=number == 0, properties=properties)
            for number, one in enumerate(instances or (f"{name}-1",))
        ),
    )


class _NoTokens:
    """Connectors are known by their signatures."""

    async def principal(self, token: str) -> Principal | None:
        return None


class FixedTopology:
    """What connectors ask of a discovery; the own cluster is what the test says."""

    def __init__(self, own: ClusterView | None) -> None:
        self.own = own
        self.instance_id = own.ids[0] if own else "nobody"
        self.wakes = 0
        self._listeners: list[Listener] = []

    def view(self) -> TopologyView | None:
        return None if self.own is None else TopologyView(self.own)

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners = [one for one in self._listeners if one != listener]

    def wake(self) -> None:
        self.wakes += 1

    def change(self, own: ClusterView) -> None:
        """Let the own cluster be another one, and notify listeners."""
        self.own = own
        for listener in list(self._listeners):
            listener(TopologyEvent(EventKind.CHANGED, None, TopologyView(own)))


class Cluster:
    """One instance of a cluster with its connectors and its HTTP service."""

    def __init__(
        self,
        name: str,
        database_url: str,
        *,
        instance: str = "",
        port: int = 0,
        own: ClusterView | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.topology = FixedTopology(own or cluster(name, *([instance] if instance else [])))
        if instance:
            self.topology.instance_id = instance
        self.database_url = database_url
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        given = {**FAST, **settings, "urls": ",".join(settings.get("urls", ()))}
        chosen = ConnectorConfiguration(**{f"connector_{name}": given[name] for name in given})
        self.assembled = assemble_connectors(chosen, database_url, self.topology, clock)
        self._server = uvicorn.Server(_config(self._app()))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._remotes = SqlRemoteClusters(database_url)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Cluster":
        self._thread.start()
        eventually(lambda: self._server.started, what="the server has started")
        self.assembled.connectors.start()
        return self

    def stop(self) -> None:
        """End as a process does on request."""
        self.stop_serving()
        self.assembled.connectors.stop(120)

    def stop_serving(self) -> None:
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(120)
        self._listener.close()

    def remotes(self) -> list[str]:
        """Ids of the clusters that are known here besides the own one."""
        with _answering():
            return [one.id for one in self._remotes.clusters()]

    def remote(self, name: str) -> ClusterView:
        with _answering():
            found = [one for one in self._remotes.clusters() if one.id == name]
        assert len(found) == 1, f"{name} is not known"
        return found[0]

    def all_states(self) -> list[ConnectorState]:
        """Of both directions, also as others hold them."""
        with _answering():
            return list(self.assembled.connectors.states())

    def states(self) -> list[ConnectorPhase]:
        return [one.state for one in self.outgoing()]

    def outgoing(self) -> list[ConnectorState]:
        me = self.topology.instance_id
        return [one for one in self.all_states() if one.holder == me]

    def _serve(self) -> None:
        self._server.run(sockets=[self._listener])

    def _app(self) -> FastAPI:
        app = create_app(
            ServiceDescription("cluster", ""), Authenticator(_NoTokens()), Readiness({})
        )
        add_routes(app, self.assembled.routes)
        return app


@contextmanager
def _answering() -> Iterator[None]:
    """Let a database that is too slow for a connector be a thing to wait for."""
    try:
        yield
    except (StoreUnavailable, psycopg.Error) as error:
        raise AssertionError(f"the database does not answer: {error}") from error


@contextmanager
def running(*clusters: Cluster) -> Iterator[None]:
    """Run them; those that still run at the end are stopped."""
    try:
        for one in clusters:
            one.start()
        yield
    finally:
        for one in clusters:
            one.stop()


def until_known(one: Cluster, others: Sequence[str], timeout: float = 120.0) -> float:
    """Wait until a cluster knows exactly the others; return how many seconds it took."""
    began = time.monotonic()

    def knows_them() -> bool:
        known = one.remotes()
        assert known == sorted(others), f"it knows {known}"
        return True

    what = f"{one.topology.instance_id} knows {sorted(others)}"
    eventually(knows_them, what, timeout=timeout, interval=0.02)
    return time.monotonic() - began


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        loop="asyncio",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
