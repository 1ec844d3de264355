"""When it is an instance's turn to propose a voting, so that not all do at the same moment."""

from packhorse.topology.voting.decisions import VoteDecision, VotingSituation
from packhorse.topology.voting.records import Member
from packhorse.topology.voting.times import VotingTimes


class ProposalTurns:
    """Anybody may propose: the first expected member at once, the others if it doesn't.

    What was refused isn't proposed again for an interval.
    """

    def __init__(self, times: VotingTimes) -> None:
        self._times = times
        self._needed: tuple[frozenset[Member], str] | None = None
        self._since = 0.0
        self._refused: frozenset[Member] | None = None
        self._refused_at = 0.0

    def note(self, situation: VotingSituation, decision: VoteDecision, now: float) -> None:
        """Take in what is decided at a look."""
        needed = (decision.expected, situation.established_id)
        if needed != self._needed:
            self._needed, self._since = needed, now
        for voting in decision.withdraw:
            is_mine = voting.initiator == situation.me.instance_id
            if is_mine and situation.snapshot.voters(voting, yes=False):
                self._refused, self._refused_at = voting.members, now

    def is_mine(self, situation: VotingSituation, decision: VoteDecision, now: float) -> bool:
        """Return whether to propose now what is expected, after `note`."""
        established = situation.snapshot.established
        if not decision.may_propose:
            return False
        if established is not None and established.members == decision.expected:
            return False
        refused_for = now - self._refused_at
        if self._refused == decision.expected and refused_for < self._times.interval_s:
            return False
        first = min(decision.expected, key=lambda one: one.leader_election_id)
        return first == situation.me or now - self._since >= 2 * self._times.hurry_s
