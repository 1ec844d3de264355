"""What the voting store holds: heartbeats, votings and votes, the established view."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One stay of an instance in the cluster; whoever comes back is another member."""

    instance_id: str
    runtime_id: str
    """Random, one a process: distinguishes two processes with the same instance id."""
    prefix: str
    started_ms: int
    """When the stay began, by the store's clock; never negative, at most 19 digits."""

    @property
    def leader_election_id(self) -> str:
        """What members are ordered by: the lowest leads."""
        return f"{self.prefix}_{self.started_ms:019d}_{self.instance_id}"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an instance says of itself; there is one for each instance id."""

    member: Member
    count: int
    """Differs from one heartbeat of a member to the next: that is what shows that it lives."""
    acknowledged: str
    """The id of the newest established view on whose predecessors nobody relies there."""
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Voting:
    """The proposal that its members be the view; an established view is a voting that has won."""

    id: str
    """Unique; among concurrent votings the lowest wins."""
    replaces: str
    """The id of the established view that it is to follow, "" for none."""
    initiator: str
    """The instance that proposed it, and that promotes it."""
    members: frozenset[Member]

    @property
    def in_order(self) -> tuple[Member, ...]:
        """The members by their leader election ids."""
        return tuple(sorted(self.members, key=lambda one: one.leader_election_id))


@dataclass(frozen=True, slots=True)
class Vote:
    """What a member says to a voting; it is never taken back."""

    voting_id: str
    instance_id: str
    yes: bool


@dataclass(frozen=True, slots=True)
class StoreView:
    """What one instance sees of the store at one moment."""

    cluster_id: str
    """Stays the same for as long as the store does."""
    heartbeats: tuple[Heartbeat, ...] = ()
    votings: tuple[Voting, ...] = ()
    votes: frozenset[Vote] = frozenset()
    established: Voting | None = None
    previous: Voting | None = None
    """What was established before; for people, nothing is decided by it."""

    def heartbeat_of(self, instance_id: str) -> Heartbeat | None:
        """Return the last visible heartbeat under an instance id."""
        found = (one for one in self.heartbeats if one.member.instance_id == instance_id)
        return next(found, None)

    def voters(self, voting: Voting, *, yes: bool) -> set[str]:
        """Return the members of a voting that have voted so."""
        ids = {member.instance_id for member in voting.members}
        cast = (one for one in self.votes if one.voting_id == voting.id and one.yes == yes)
        return {one.instance_id for one in cast} & ids


def newest_start(members: Iterable[Member]) -> int:
    """Return when the last of the members came, -1 without any."""
    return max((member.started_ms for member in members), default=-1)
