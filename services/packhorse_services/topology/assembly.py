"""Makes the parts of a topology service from its settings."""

from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter

from packhorse.bookkeeping.audit_rows import write_act
from packhorse.clock import Clock, SystemClock
from packhorse.db.transactions import writing
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.open import open_discovery
from packhorse.topology.own_cluster import InstanceProperties
from packhorse.topology.patience import PatientPool, patient_pool
from packhorse.topology.properties import FixedProperties
from packhorse.topology.voting.member import VotingMember
from packhorse_services.topology.app import topology_service
from packhorse_services.topology.connectors.allow_list import AllowList
from packhorse_services.topology.connectors.component import Connectors
from packhorse_services.topology.connectors.knowledge import FollowedTopology, Knowledge
from packhorse_services.topology.connectors.options import ConnectorConfiguration
from packhorse_services.topology.connectors.routes import connector_routes
from packhorse_services.topology.http.event_feed import Feed
from packhorse_services.topology.http.parts import TopologyServices
from packhorse_services.topology.http.store_documents import MemberVotings, cluster_view_of
from packhorse_services.topology.settings import Settings

ROLE = "topology"


def assemble(settings: Settings, authenticator: Authenticator) -> Service:
    """Put a topology service together; nothing connects before it is started."""
    url = settings.database_url.get_secret_value()
    clock = SystemClock()
    announced = InstanceProperties(ROLE, endpoint=settings.endpoint)
    discovery = open_discovery(url, settings, [FixedProperties(announced.properties())])
    connecting = assemble_connectors(settings, url, discovery, clock)
    member = discovery.membership
    parts = TopologyServices(
        discovery=discovery,
        feed=Feed(discovery.instance_id, clock, max_streams=settings.event_streams),
        clock=clock,
        connectors=connecting.connectors.states,
        note_act=partial(_note_act, connecting.pool),
        cluster_view=(lambda: cluster_view_of(member)) if isinstance(member, LeaseMember) else None,
        votings=MemberVotings(member) if isinstance(member, VotingMember) else None,
    )
    return topology_service(
        parts,
        authenticator,
        connector_routes=connecting.routes,
        components=[connecting.connectors],
        docs=settings.docs,
    )


@dataclass(frozen=True)
class AssembledConnectors:
    """Start `connectors` behind the discovery, and stop it before; mount `routes`."""

    connectors: Connectors
    routes: APIRouter
    pool: PatientPool
    """Is closed with `connectors`."""


def assemble_connectors(
    settings: ConnectorConfiguration,
    database_url: str,
    topology: FollowedTopology,
    clock: Clock | None = None,
) -> AssembledConnectors:
    """Put them together; nothing connects before `connectors` is started."""
    own_clock = clock or SystemClock()
    pool = patient_pool(database_url, "topology-connectors")
    knowledge = Knowledge(topology, pool, settings, own_clock)
    routes = connector_routes(knowledge, AllowList(settings.allowed_connectors, clock=own_clock))
    return AssembledConnectors(Connectors(knowledge), routes, pool)


def _note_act(pool: PatientPool) -> None:
    """Write it in a transaction of its own, before it is done: heartbeats carry it further."""
    with writing(pool.connection) as connection:
        write_act(connection)
