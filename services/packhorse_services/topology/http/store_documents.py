"""What the two stores know of the local cluster besides its view: numbers, or votings."""

from dataclasses import dataclass

from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.records import StoreView, Voting
from packhorse_services.topology.http.schemas import (
    ClusterViewDocument,
    VoteDocument,
    VotingDocument,
    VotingList,
)


def cluster_view_of(member: LeaseMember) -> ClusterViewDocument | None:
    """Return the cluster as the last heartbeat saw it; None before the first joining."""
    found = member.cluster_document()
    if found is None:
        return None
    instances = {str(number): name for number, name in sorted(member.numbers().items())}
    return ClusterViewDocument(**found, instances=instances)


@dataclass(frozen=True, slots=True)
class MemberVotings:
    """The votings that a member takes part in."""

    member: VotingMember

    def votings(self) -> VotingList:
        """Return them as the last heartbeat saw them."""
        seen = self.member.snapshot()
        if seen is None:
            return VotingList(established=None, previous=None, votings=[])
        return VotingList(
            established=seen.established.id if seen.established else None,
            previous=seen.previous.id if seen.previous else None,
            votings=[_voting(one, seen) for one in sorted(seen.votings, key=lambda one: one.id)],
        )

    def start_voting(self) -> None:
        """Begin one with the next heartbeat."""
        self.member.start_new_voting()


def _voting(voting: Voting, seen: StoreView) -> VotingDocument:
    said = {one.instance_id: one.yes for one in seen.votes if one.voting_id == voting.id}
    return VotingDocument(
        id=voting.id,
        initiator=voting.initiator,
        votes=[
            VoteDocument(instance_id=one.instance_id, vote=said.get(one.instance_id))
            for one in voting.in_order
        ],
    )
