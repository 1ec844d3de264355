"""The connectors of a process, put together."""

from dataclasses import dataclass

from fastapi import APIRouter

from packhorse.clock import Clock, SystemClock
from packhorse.topology.patience import patient_pool
from packhorse_services.topology.connectors.allow_list import AllowList
from packhorse_services.topology.connectors.component import Connectors
from packhorse_services.topology.connectors.knowledge import Knowledge, Topology
from packhorse_services.topology.connectors.options import ConnectorSettings
from packhorse_services.topology.connectors.routes import connector_routes


@dataclass(frozen=True)
class AssembledConnectors:
    """Start `connectors` behind the discovery, and stop it before; mount `routes`."""

    connectors: Connectors
    routes: APIRouter


def assemble_connectors(
    settings: ConnectorSettings, database_url: str, topology: Topology, clock: Clock | None = None
) -> AssembledConnectors:
    """Put them together; nothing connects before `connectors` is started."""
    own_clock = clock or SystemClock()
    pool = patient_pool(database_url, "topology-connectors")
    knowledge = Knowledge(topology, pool, settings, own_clock)
    routes = connector_routes(knowledge, AllowList(settings.allowed, clock=own_clock))
    return AssembledConnectors(Connectors(knowledge), routes)
