"""What one instance votes, promotes, withdraws and relies on."""

import pytest

from packhorse.topology.voting.decisions import decide, in_turn
from packhorse.topology.voting.records import Member
from tests.harness.topology.votings import A, B, C, D, member, situation, votes, voting

AB = voting("v0", A, B, replaces="")


def test_the_view_holds_while_its_members_are_those_who_live() -> None:
    decision = decide(situation(A, view=AB, alive=[B]))
    assert decision.holds
    assert decision.expected == {A, B}


@pytest.mark.parametrize(
    "alive",
    [[], [B, C], [member("b", 9, run=2)]],
    ids=["one has died", "one is new", "one has restarted"],
)
def test_the_view_holds_no_more_when_others_live_than_it_says(alive: list[Member]) -> None:
    decision = decide(situation(A, view=AB, alive=alive))
    assert not decision.holds
    assert decision.may_propose


def test_an_instance_does_not_expect_an_earlier_stay_of_its_own() -> None:
    decision = decide(situation(member("a", 9, run=2), view=AB, alive=[A, B]))
    assert decision.expected == {member("a", 9, run=2), B}


def test_nothing_is_proposed_by_one_that_has_only_begun_to_look() -> None:
    assert not decide(situation(A, view=AB, alive=[B, C], is_sure=False)).may_propose


def test_a_voting_for_those_who_live_gets_a_yes_and_ends_the_old_view() -> None:
    decision = decide(situation(B, view=AB, alive=[A, C], votings=[voting("v1", A, B, C)]))
    assert votes(decision.votes) == {"v1": True}
    assert (decision.holds, decision.may_propose, decision.withdraw) == (False, False, ())


def test_a_voting_asked_for_by_an_operator_gets_a_yes_though_nothing_has_changed() -> None:
    decision = decide(situation(B, view=AB, alive=[A], votings=[voting("v1", A, B)]))
    assert votes(decision.votes) == {"v1": True}
    assert not decision.holds


def test_of_concurrent_votings_the_lowest_id_gets_the_yes_and_the_others_a_no() -> None:
    begun = [voting("v3", B, A, C, D), voting("v1", A, B, C, D), voting("v2", C, A, B, D)]
    decision = decide(situation(D, view=AB, alive=[A, B, C], votings=begun))
    assert votes(decision.votes) == {"v1": True, "v2": False, "v3": False}


def test_beside_the_best_what_only_differs_from_what_is_visible_here_waits() -> None:
    begun = [voting("v1", A, B, C), voting("v2", B, A), voting("v3", B, A, C, replaces="else")]
    decision = decide(situation(C, view=AB, alive=[A, B], votings=begun))
    assert votes(decision.votes) == {"v1": True}


def test_the_initiator_of_a_higher_voting_gives_it_up_for_the_lowest() -> None:
    begun = [voting("v1", A, B), voting("v2", B, A)]
    decision = decide(situation(B, alive=[A], votings=begun, view=voting("v0", A)))
    assert [one.id for one in decision.withdraw] == ["v2"]
    assert votes(decision.votes) == {"v1": True}


def test_one_that_voted_for_a_higher_voting_still_votes_for_the_lowest() -> None:
    begun = [voting("v1", A, B, C), voting("v2", B, A, C)]
    decision = decide(situation(C, alive=[A, B], votings=begun, yes={"v2": "c"}, view=AB))
    assert votes(decision.votes) == {"v1": True}


def test_only_when_all_have_said_yes_and_only_its_initiator_promotes() -> None:
    begun = voting("v1", A, B, C)
    some = situation(A, view=AB, alive=[B, C], votings=[begun], yes={"v1": "b"})
    everyone = situation(A, view=AB, alive=[B, C], votings=[begun], yes={"v1": "bc"})
    another = situation(B, view=AB, alive=[A, C], votings=[begun], yes={"v1": "bc"})
    assert [decide(one).promote for one in (some, everyone, another)] == [None, begun, None]
    two = [begun, voting("v2", B, A, C)]
    split = situation(A, view=AB, alive=[B, C], votings=two, yes={"v1": "b", "v2": "c"})
    assert decide(split).promote is None


def test_a_yes_of_somebody_who_is_no_member_counts_for_nothing() -> None:
    begun = voting("v1", A, B)
    decision = decide(situation(A, alive=[B], votings=[begun], yes={"v1": "x"}))
    assert decision.promote is None


def test_what_has_won_is_not_promoted_once_another_lives() -> None:
    begun = voting("v1", A, B)
    decision = decide(
        situation(A, alive=[B, C], votings=[begun], yes={"v1": "b"}, view=voting("v0", A))
    )
    assert decision.promote is None
    assert decision.withdraw == (begun,)


def test_a_refused_voting_is_given_up_and_stands_in_nobodys_way() -> None:
    begun = voting("v1", A, B, C)
    mine = decide(situation(A, view=AB, alive=[B, C], votings=[begun], no={"v1": "c"}))
    assert mine.withdraw == (begun,)
    assert mine.may_propose
    other = decide(situation(B, view=AB, alive=[A], votings=[begun], no={"v1": "c"}))
    assert other.holds
    assert not other.votes


def test_a_voting_that_replaces_another_view_waits() -> None:
    begun = voting("v1", A, B, C, replaces="elsewhere")
    decision = decide(situation(B, view=AB, alive=[A, C], votings=[begun]))
    assert not decision.votes
    assert not decision.withdraw


def test_a_voting_without_one_who_was_heard_since_gets_a_no() -> None:
    begun = voting("v1", A, B)
    unheard = situation(B, view=AB, alive=[A, C], votings=[begun])
    heard = situation(B, view=AB, alive=[A, C], votings=[begun], heard={"v1": frozenset({C})})
    assert votes(decide(unheard).votes) == {}
    assert votes(decide(heard).votes) == {"v1": False}


def test_the_old_view_holds_again_with_the_no_that_ends_the_voting() -> None:
    abc = voting("v0", A, B, C, replaces="")
    wrong = voting("v1", A, B)
    waits = situation(B, view=abc, alive=[A, C], votings=[wrong])
    heard = situation(B, view=abc, alive=[A, C], votings=[wrong], heard={"v1": frozenset({C})})
    left_out = situation(C, view=abc, alive=[A, B], votings=[wrong], heard={"v1": frozenset({C})})
    assert [decide(one).holds for one in (waits, heard, left_out)] == [False, True, False]


def test_a_timed_out_voting_is_removed_and_holds_the_view_off_once_more() -> None:
    # Its initiator may have promoted it just before.
    old = voting("v1", A, B, C)
    decision = decide(situation(B, view=AB, alive=[A], votings=[old], timed_out=["v1"]))
    assert decision.withdraw == (old,)
    assert not decision.holds
    assert decision.may_propose


def test_a_timed_out_voting_is_removed_though_it_is_what_is_expected() -> None:
    old = voting("v1", A, B)
    decision = decide(situation(A, view=AB, alive=[B], votings=[old], timed_out=["v1"]))
    assert (decision.withdraw, decision.promote) == ((old,), None)
    assert decision.may_propose


def test_a_voting_whose_initiator_has_died_is_removed() -> None:
    for orphan in (voting("v1", C, A, B), voting("v1", A, B, by=C)):
        decision = decide(situation(B, view=AB, alive=[A], votings=[orphan], dead=[C]))
        assert decision.withdraw == (orphan,)
        assert not decision.votes


def test_a_voting_whose_initiators_heartbeat_is_on_its_way_is_not() -> None:
    early = voting("v1", C, A, B)
    assert not decide(situation(B, view=AB, alive=[A], votings=[early])).withdraw


def test_a_newcomer_believes_a_voting_about_those_it_has_not_heard_yet() -> None:
    begun = voting("v1", A, B, C)
    decision = decide(
        situation(C, view=AB, alive=[A], possible=[B, D], votings=[begun], is_sure=False)
    )
    assert votes(decision.votes) == {"v1": True}


def test_a_newcomer_does_not_vote_without_one_it_has_heard() -> None:
    begun = voting("v1", A, C)
    decision = decide(
        situation(C, view=AB, alive=[B], possible=[A], votings=[begun], is_sure=False)
    )
    assert not decision.votes


def test_who_came_before_the_last_member_and_is_none_is_not_in_turn() -> None:
    # Voted out, or late to be seen: with its old start time it would move others down.
    view = voting("v0", B, C, replaces="")
    assert not in_turn(A, view)
    assert not in_turn(member("d", C.started_ms), view)
    assert in_turn(D, view)
    assert in_turn(B, view)
    assert in_turn(A, None)
    assert decide(situation(B, view=view, alive=[A, C])).holds


def test_members_are_in_the_order_of_prefix_start_and_id() -> None:
    first, second = member("z", 500, prefix="0"), member("y", 2)
    third, fourth = member("a", 10_000), member("b", 10_000)
    begun = voting("v1", fourth, third, first, second)
    assert begun.in_order == (first, second, third, fourth)
    assert second.leader_election_id == "1_0000000000000000002_y"
