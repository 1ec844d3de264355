"""Who lives, by the own clock alone."""

from packhorse.topology.voting.records import Heartbeat, StoreView
from packhorse.topology.voting.watch import PeerWatch
from tests.harness.topology.votings import A, B, C, heartbeat, member, voting


def seen(*beats: Heartbeat, votings: tuple[str, ...] = ()) -> StoreView:
    return StoreView("cluster", beats, tuple(voting(id_, A) for id_ in votings))


def test_what_is_there_at_the_first_look_may_be_old() -> None:
    watch = PeerWatch(20)
    watch.look(seen(heartbeat(A)), 100)
    assert (watch.alive(100), watch.possible(100)) == (frozenset(), {A})
    assert (watch.alive(120), watch.possible(120)) == (frozenset(), frozenset())


def test_what_changes_or_is_new_lives_for_a_timeout() -> None:
    watch = PeerWatch(20)
    watch.look(seen(heartbeat(A)), 100)
    watch.look(seen(heartbeat(A, 2), heartbeat(B)), 110)
    assert watch.alive(129.9) == {A, B}
    watch.look(seen(heartbeat(A, 2), heartbeat(B, 2)), 125)
    assert watch.alive(130) == {B}


def test_a_count_that_goes_back_is_a_change_too() -> None:
    watch = PeerWatch(20)
    watch.look(seen(heartbeat(A, 1_000)), 100)
    again = member("a", 5, run=2)
    watch.look(seen(heartbeat(again, 1)), 110)
    assert watch.alive(110) == {again}


def test_one_that_left_is_gone_at_once() -> None:
    watch = PeerWatch(20)
    watch.look(seen(), 100)
    watch.look(seen(heartbeat(A)), 101)
    watch.look(seen(), 102)
    assert watch.alive(102) == frozenset()


def test_it_is_sure_after_a_timeout_and_no_more_when_it_doubts() -> None:
    watch = PeerWatch(20)
    assert not watch.is_sure(1_000)
    watch.look(seen(heartbeat(A), heartbeat(B)), 100)
    watch.look(seen(heartbeat(A, 2), heartbeat(B, 2)), 115)
    assert (watch.is_sure(119), watch.is_sure(120)) == (False, True)
    watch.doubt()
    watch.look(seen(heartbeat(A, 3), heartbeat(B, 2)), 150)
    assert (watch.alive(150), watch.possible(150)) == (frozenset(), {A, B})
    assert not watch.is_sure(169)


def test_votings_time_out_from_when_they_were_first_seen() -> None:
    watch = PeerWatch(20)
    watch.look(seen(), 100)
    watch.look(seen(votings=("v1",)), 105)
    watch.look(seen(votings=("v1", "v2")), 115)
    assert (watch.timed_out(124), watch.timed_out(125)) == (frozenset(), {"v1"})


def test_one_that_doubts_counts_the_time_of_votings_anew() -> None:
    watch = PeerWatch(20)
    watch.look(seen(votings=("v1",)), 100)
    watch.doubt()
    watch.look(seen(heartbeat(A), votings=("v1",)), 130)
    assert (watch.timed_out(149), watch.timed_out(150)) == (frozenset(), {"v1"})
    assert watch.heard_since("v1") == frozenset()


def test_it_knows_who_was_heard_after_a_voting_was_first_seen() -> None:
    watch = PeerWatch(20)
    watch.look(seen(heartbeat(A)), 100)
    watch.look(seen(heartbeat(A, 2), heartbeat(B), votings=("v1",)), 105)
    assert watch.heard_since("v1") == frozenset()
    watch.look(seen(heartbeat(A, 3), heartbeat(B), heartbeat(C), votings=("v1",)), 110)
    assert watch.heard_since("v1") == {A, C}
    assert watch.heard_since("unknown") == frozenset()
