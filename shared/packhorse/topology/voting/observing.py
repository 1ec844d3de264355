"""What a member that votes reports to its discovery about one look at the store."""

from packhorse.topology.membership import Observation
from packhorse.topology.view import ClusterView, InstanceDescription
from packhorse.topology.voting.records import StoreView, Voting


def nothing(valid_until: float) -> Observation:
    """Return the observation of an instance that may rely on no view."""
    return Observation(None, "", False, valid_until)


def observe(established: Voting, seen: StoreView, local_id: str, valid_until: float) -> Observation:
    """Return the established view as the local instance sees it, which is one of its members.

    It is settled once every member's heartbeat acknowledges it.
    """
    said = {one.member: one.acknowledged for one in seen.heartbeats}
    settled = all(said.get(member) == established.id for member in established.members)
    return Observation(_view(established, seen, local_id), established.id, settled, valid_until)


def _view(established: Voting, seen: StoreView, local_id: str) -> ClusterView:
    properties = {one.member: one.properties for one in seen.heartbeats}
    instances = tuple(
        InstanceDescription(
            id=member.instance_id,
            cluster_id=seen.cluster_id,
            is_leader=place == 0,
            is_local=member.instance_id == local_id,
            properties=properties.get(member, {}),
        )
        for place, member in enumerate(established.in_order)
    )
    return ClusterView(seen.cluster_id, instances)
