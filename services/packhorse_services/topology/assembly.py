"""Makes the parts of a topology service from its settings."""

from packhorse.clock import SystemClock
from packhorse.runtime.auth import Authenticator
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.open import open_discovery
from packhorse.topology.own_cluster import InstanceProperties
from packhorse.topology.properties import FixedProperties
from packhorse.topology.voting.member import VotingMember
from packhorse_services.topology.app import TopologyService, topology_service
from packhorse_services.topology.connectors.assembly import assemble_connectors
from packhorse_services.topology.http.event_feed import Feed
from packhorse_services.topology.http.parts import TopologyServices
from packhorse_services.topology.http.store_documents import MemberVotings, cluster_view_of
from packhorse_services.topology.settings import Settings

ROLE = "topology"


def assemble(settings: Settings, authenticator: Authenticator) -> TopologyService:
    """Put a topology service together; nothing connects before it is started."""
    url = settings.database_url.get_secret_value()
    clock = SystemClock()
    announced = InstanceProperties(ROLE, endpoint=settings.endpoint)
    discovery = open_discovery(url, settings.topology, [FixedProperties(announced.properties())])
    connecting = assemble_connectors(settings.connectors, url, discovery, clock)
    member = discovery.membership
    parts = TopologyServices(
        discovery=discovery,
        feed=Feed(discovery.instance_id, clock, max_streams=settings.event_streams),
        clock=clock,
        connectors=connecting.connectors.states,
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
