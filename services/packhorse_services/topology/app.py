"""A topology service put together: its parts, its HTTP service, and what makes it ready."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from packhorse.errors import Transient
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.feed import StreamsEnded, TooManyStreams
from packhorse.runtime.http import Service, ServiceDescription, add_routes, create_app
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.metrics import report
from packhorse.runtime.problems import ProblemKind
from packhorse.runtime.readiness import Readiness
from packhorse.topology.discovery import Discovery
from packhorse.topology.properties import InvalidProperty
from packhorse.topology.rejection import Rejected
from packhorse_services.topology.connectors.routes import UNSIGNED
from packhorse_services.topology.http import event_routes, routes
from packhorse_services.topology.http.parts import TopologyServices

DESCRIPTION = (
    "Shows which instances are alive, in which clusters, in what order, and which one leads."
)
_PROBLEMS: Mapping[type[Exception], ProblemKind] = {
    TooManyStreams: ProblemKind(429, "too-many-streams", "As many follow the topology as may", 10),
    StreamsEnded: ProblemKind(503, "streams-ended", "The service is about to end", 2),
    Rejected: UNSIGNED,
    InvalidProperty: ProblemKind(422, "invalid-property", "No instance may announce this"),
}

_ROUTERS = (event_routes.router, routes.router)


class NoHeartbeat(Transient):
    """The last heartbeat failed, or there has been none."""


_SERVICE = ServiceDescription(
    "packhorse topology", DESCRIPTION, problems=_PROBLEMS, documentation=(f"{__package__}.http",)
)


def topology_service(
    parts: TopologyServices,
    authenticator: Authenticator,
    *,
    connector_routes: APIRouter | None = None,
    components: Sequence[Component] = (),
    docs: bool = False,
) -> Service:
    """Put a topology service together; nothing connects before it is started.

    `components` are started behind the discovery, and stopped before it.
    """
    report("packhorse_topology_")
    parts.discovery.add_listener(parts.feed.hear)
    ready = Readiness({"heartbeat": lambda: _ask_heartbeat(parts.discovery)})
    app = create_app(_SERVICE, authenticator, ready, docs=docs)
    app.state.stopping.then(parts.feed.end_streams)
    app.state.parts = parts
    add_routes(app, *_ROUTERS, *([] if connector_routes is None else [connector_routes]))
    return Service(app, (parts.discovery, *components))


def _ask_heartbeat(discovery: Discovery) -> None:
    """Readiness is not being current: a view that changes is shown as such."""
    if discovery.trouble() or discovery.observation() is None:
        raise NoHeartbeat(discovery.trouble() or "there has been no heartbeat yet")
