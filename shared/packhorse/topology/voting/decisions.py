"""What one instance makes of one look at the store: whom it expects, what it votes, what holds.

Pure: an `VotingSituation` in, a `VoteDecision` out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from packhorse.topology.voting.records import Member, StoreView, Vote, Voting, newest_start


@dataclass(frozen=True, slots=True)
class VotingSituation:
    """What an instance knows when it decides."""

    me: Member
    snapshot: StoreView
    alive: frozenset[Member] = frozenset()
    """Whose heartbeats are heard; the instance itself need not be among them."""
    possible: frozenset[Member] = frozenset()
    """Whose heartbeats are visible, but perhaps old, as this instance has only begun to look."""
    is_sure: bool = True
    """It has looked for so long that it has heard everybody who lives."""
    timed_out: frozenset[str] = frozenset()
    """Votings that have been visible for a time-out."""
    heard_since: Mapping[str, frozenset[Member]] = field(default_factory=dict)
    """By voting: who was heard after the voting was first seen."""

    @property
    def established_id(self) -> str:
        """The id of the established view, "" without one."""
        established = self.snapshot.established
        return "" if established is None else established.id


@dataclass(frozen=True, slots=True)
class VoteDecision:
    """What an instance does, in this order, and whether it may rely on the established view."""

    expected: frozenset[Member]
    """Who the view should consist of."""
    withdraw: tuple[Voting, ...] = ()
    votes: tuple[Vote, ...] = ()
    promote: Voting | None = None
    may_propose: bool = False
    """No voting that is under way would establish what is expected."""
    holds: bool = False
    """The established view is what is expected, and no voting can replace it meanwhile."""


def in_turn(member: Member, established: Voting | None) -> bool:
    """Return whether a member is in the view or came after all that are.

    Who has come earlier was voted out, or was not visible then: it takes a new start time before
    anybody counts it in, so that nobody else is moved down.
    """
    if established is None or member in established.members:
        return True
    return member.started_ms > newest_start(established.members)


def decide(situation: VotingSituation) -> VoteDecision:
    """Return what to do next; `situation.me` is in turn."""
    expected = _expected(situation)
    votings = sorted(situation.snapshot.votings, key=lambda voting: voting.id)
    best = next((one for one in votings if _is_candidate(one, expected, situation)), None)
    withdraw = tuple(one for one in votings if _is_over(one, best, situation))
    votes = tuple(
        vote
        for one in votings
        if one not in withdraw and (vote := _vote(one, best, expected, situation)) is not None
    )
    established = situation.snapshot.established
    is_agreed = established is not None and established.members == expected
    return VoteDecision(
        expected=expected,
        withdraw=withdraw,
        votes=votes,
        promote=best if _is_won_by_me(best, situation) else None,
        may_propose=best is None and situation.is_sure,
        holds=is_agreed and not _open_votings(votings, withdraw, votes, situation),
    )


def _expected(situation: VotingSituation) -> frozenset[Member]:
    return _others(situation.alive, situation) | {situation.me}


def _others(members: frozenset[Member], situation: VotingSituation) -> frozenset[Member]:
    established, me = situation.snapshot.established, situation.me.instance_id
    return frozenset(one for one in members if one.instance_id != me and in_turn(one, established))


def _is_candidate(voting: Voting, expected: frozenset[Member], situation: VotingSituation) -> bool:
    """Return whether the voting can win, and would establish what is expected here."""
    return (
        voting.id not in situation.timed_out
        and _is_open(voting, situation)
        and voting.replaces == situation.established_id
        and expected <= voting.members <= expected | _others(situation.possible, situation)
    )


def _is_open(voting: Voting, situation: VotingSituation) -> bool:
    return not situation.snapshot.voters(voting, yes=False)


def _is_over(voting: Voting, best: Voting | None, situation: VotingSituation) -> bool:
    """Return whether the voting is to be removed: timed out, orphaned, or the own and not the best.

    Removing it also stops an initiator that was paused from promoting it later.
    """
    if voting.id in situation.timed_out or _is_dead(voting.initiator, situation):
        return True
    return voting.initiator == situation.me.instance_id and voting != best


def _is_dead(instance_id: str, situation: VotingSituation) -> bool:
    beat = situation.snapshot.heartbeat_of(instance_id)
    if beat is None or instance_id == situation.me.instance_id:
        return False
    return beat.member not in situation.alive | situation.possible


def _vote(
    voting: Voting, best: Voting | None, expected: frozenset[Member], situation: VotingSituation
) -> Vote | None:
    """Return the vote to cast now: yes to the best, no to what is second or known to be wrong.

    A voting that only differs from what is visible here waits: what its initiator has seen may be
    on its way.
    """
    me = situation.me.instance_id
    has_voted = any(
        (v.voting_id, v.instance_id) == (voting.id, me) for v in situation.snapshot.votes
    )
    if situation.me not in voting.members or has_voted:
        return None
    if voting == best:
        return Vote(voting.id, me, True)
    is_second = _is_candidate(voting, expected, situation)
    forgets_somebody = situation.heard_since.get(voting.id, frozenset()) & (
        expected - voting.members
    )
    return Vote(voting.id, me, False) if is_second or forgets_somebody else None


def _is_won_by_me(best: Voting | None, situation: VotingSituation) -> bool:
    if best is None or best.initiator != situation.me.instance_id:
        return False
    return len(situation.snapshot.voters(best, yes=True)) == len(best.members)


def _open_votings(
    votings: list[Voting],
    withdraw: tuple[Voting, ...],
    votes: tuple[Vote, ...],
    situation: VotingSituation,
) -> list[Voting]:
    """Return the votings that somebody could promote before the next look.

    The own withdrawn ones and those that get a no now are not among them. Withdrawing one of
    another instance may come too late.
    """
    me, refused = situation.me.instance_id, {vote.voting_id for vote in votes if not vote.yes}
    ended = {one.id for one in withdraw if one.initiator == me} | refused
    return [one for one in votings if one.id not in ended and _is_open(one, situation)]
