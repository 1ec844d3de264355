"""Whose turn it is to propose, and when again after a no."""

from packhorse.topology.voting.decisions import VotingSituation, decide
from packhorse.topology.voting.times import VotingTimes
from packhorse.topology.voting.turns import ProposalTurns
from tests.harness.topology.votings import A, B, C, situation, voting

TIMES = VotingTimes(interval_s=15, timeout_s=20)  # in a hurry it looks each 1.5 s


def asked(turns: ProposalTurns, situation: VotingSituation, now: float) -> bool:
    """Take in a look; return whether the instance is to propose."""
    decision = decide(situation)
    turns.note(situation, decision, now)
    return turns.is_mine(situation, decision, now)


def test_the_first_expected_member_proposes_at_once_and_the_others_if_it_does_not() -> None:
    view = voting("v0", A, replaces="")
    assert asked(ProposalTurns(TIMES), situation(A, view=view, alive=[B]), 100)
    turns, other = ProposalTurns(TIMES), situation(B, view=view, alive=[A])
    assert [asked(turns, other, now) for now in (100, 102.9, 103)] == [False, False, True]


def test_the_others_wait_anew_when_something_else_is_needed() -> None:
    view, turns = voting("v0", A, replaces=""), ProposalTurns(TIMES)
    assert not asked(turns, situation(B, view=view, alive=[A]), 100)
    more = situation(B, view=view, alive=[A, C])
    assert [asked(turns, more, now) for now in (102, 104.9, 105)] == [False, False, True]


def test_what_was_refused_is_not_proposed_again_for_an_interval() -> None:
    view, turns = voting("v0", A, replaces=""), ProposalTurns(TIMES)
    refused = [voting("v1", A, B)]
    assert not asked(
        turns, situation(A, view=view, alive=[B], votings=refused, no={"v1": "b"}), 100
    )
    again = situation(A, view=view, alive=[B])
    assert not asked(turns, again, 114.9)
    assert asked(turns, situation(A, view=view, alive=[B, C]), 114.9)
    assert asked(turns, again, 115)


def test_what_was_not_refused_or_was_anothers_is_proposed_at_once() -> None:
    view = voting("v0", A, replaces="")
    silent, anothers = voting("v1", A, B), voting("v1", B, A)
    for begun, no in ((silent, ""), (anothers, "a")):
        seen = situation(A, view=view, alive=[B], votings=[begun], timed_out=["v1"], no={"v1": no})
        assert asked(ProposalTurns(TIMES), seen, 100)
