"""Members that vote, step by step, on a store in memory that shows everything at once."""

import pytest

from packhorse.topology.membership import DuplicateInstance, Observation, StoreUnavailable
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.records import Voting
from packhorse.topology.voting.times import VotingTimes
from tests.harness.topology.driven import ids, joined, settled, step
from tests.harness.topology.voting_clusters import VotingMemoryCluster


def established(member: VotingMember) -> Voting:
    seen = member.snapshot()
    assert seen is not None
    assert seen.established is not None
    return seen.established


def votings_of(member: VotingMember) -> tuple[Voting, ...]:
    seen = member.snapshot()
    assert seen is not None
    return seen.votings


def drive(cluster: VotingMemoryCluster, seconds: int, *members: VotingMember) -> list[Observation]:
    """Let all beat once a second; return what they saw last."""
    seen = []
    for _ in range(seconds):
        cluster.pass_time(1)
        seen = [step(member) for member in members]
    return seen


def test_the_promoted_view_is_the_voting_and_the_one_before_is_kept(
    cluster: VotingMemoryCluster,
) -> None:
    a = cluster.member("a", runtime_id="run-a")
    settled(cluster, a)
    b = cluster.member("b")
    settled(cluster, a, b)
    seen = b.snapshot()
    assert seen is not None
    assert (seen.established, seen.previous) != (None, None)
    view, before = established(b), seen.previous
    assert before is not None
    assert (view.id, view.replaces) == ("run-a.2", "run-a.1")
    assert before.id == "run-a.1"
    assert [one.instance_id for one in before.members] == ["a"]
    assert seen.votings == ()
    assert step(a).revision == view.id


def test_when_the_initiator_dies_before_it_promotes_another_voting_takes_its_place(
    cluster: VotingMemoryCluster,
) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    a.start_new_voting()
    step(a)  # proposes
    assert [step(one).view for one in (b, c)] == [None, None]  # both say yes
    cluster.kill(a)
    before = established(b).id
    seen = settled(cluster, b, c)
    assert ids(seen) == ("b", "c")
    assert established(b).replaces == before
    assert votings_of(b) == ()


def test_an_initiator_that_comes_back_late_can_not_promote_what_was_given_up(
    cluster: VotingMemoryCluster,
) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    a.start_new_voting()
    step(a)
    step(a)
    settled(cluster, b, c)
    (stale,) = votings_of(a)
    assert not cluster.store.session(cluster.processes[id(a)]).promote(stale)
    assert ids(settled(cluster, a, b, c)) == ("b", "c", "a")


def test_a_voting_without_all_votes_times_out(cluster: VotingMemoryCluster) -> None:
    a, b = joined(cluster, "a", "b")
    before = established(a).id
    a.start_new_voting()
    for _ in range(15):  # b lives and is asked, but its vote is lost: it never looks
        cluster.pass_time(1)
        assert step(a).view is None or established(a).id == before
    assert ids(settled(cluster, a, b)) == ("a", "b")
    assert established(a).id != before


def test_an_operator_gets_a_new_view_of_the_same_members(cluster: VotingMemoryCluster) -> None:
    a, b = joined(cluster, "a", "b")
    drive(cluster, 20, a, b)  # b must have looked for as long before it proposes anything
    before = established(a)
    b.start_new_voting()
    step(b)
    assert [one.view for one in (step(a), step(b))] == [None, None]
    settled(cluster, a, b)
    assert established(a).replaces == before.id
    assert established(a).members == before.members
    assert established(a).initiator == "b"
    drive(cluster, 60, a, b)
    assert established(a).replaces == before.id  # one voting, not a series


def test_a_late_own_heartbeat_ends_the_own_view_at_once_and_alone(
    cluster: VotingMemoryCluster,
) -> None:
    times = VotingTimes()
    (a,) = joined(cluster, "a")
    cluster.pass_time(times.late_after_s + 0.1)
    assert a.beat({}).view is None
    assert ids(a.beat({})) == ("a",)


def test_the_own_heartbeat_is_late_before_the_others_give_one_up() -> None:
    assert VotingTimes(15, 20).late_after_s == 20
    assert VotingTimes(30, 120).late_after_s == 60
    assert VotingTimes(10, 100).late_after_s == 80
    for interval in range(1, 60):
        for timeout in range(interval + 1, 200, 7):
            assert 0 < VotingTimes(interval, timeout).late_after_s <= timeout


def test_one_that_was_late_gives_the_others_a_timeout_to_be_heard(
    cluster: VotingMemoryCluster,
) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    view = established(a).id
    cluster.pass_time(60)  # all three were paused; c is continued first
    for _ in range(9):
        assert step(c).view is None
        cluster.pass_time(2)
    assert ids(settled(cluster, a, b, c)) == ("a", "b", "c")
    assert established(c).id == view


def test_an_isolated_instance_has_no_view_of_its_own(cluster: VotingMemoryCluster) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    process = cluster.processes[id(a)]
    last = step(a)
    cluster.store.away(process)
    drive(cluster, 60, b, c)
    with pytest.raises(StoreUnavailable):
        a.beat({})
    assert last.valid_until < cluster.clock.monotonic()
    cluster.store.away(process, False)
    seen = [a.beat({})]
    while seen[-1].view is None:
        cluster.pass_time(1)
        step(b), step(c)
        seen.append(a.beat({}))
    assert ids(seen[-1]) == ("b", "c", "a")


def test_the_others_rely_on_no_view_while_one_is_missing_or_has_a_voting(
    cluster: VotingMemoryCluster,
) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    cluster.kill(a)
    shown = []
    for _ in range(60):
        cluster.pass_time(1)
        for one in (b, c):
            seen = step(one)
            shown.append(ids(seen))
    assert [one for n, one in enumerate(shown) if n == 0 or one != shown[n - 1]] == [
        ("a", "b", "c"),
        (),
        ("b", "c"),
    ]


def test_a_lower_prefix_comes_first_whenever_it_comes(cluster: VotingMemoryCluster) -> None:
    a = cluster.member("a")
    settled(cluster, a)
    b = cluster.member("b", prefix="0")
    assert ids(settled(cluster, a, b)) == ("b", "a")


def test_a_process_that_was_taken_for_dead_gives_way_to_its_successor(
    cluster: VotingMemoryCluster,
) -> None:
    a, b = joined(cluster, "a", "b")
    again = cluster.member("a")  # a is paused, and somebody starts it again
    assert ids(settled(cluster, b, again)) == ("b", "a")
    with pytest.raises(DuplicateInstance, match="instance id a"):
        a.beat({})
    for _ in range(40):
        cluster.pass_time(1)
        assert {ids(step(b)), ids(step(again))} == {("b", "a")}
        try:
            assert a.beat({}).view is None
        except DuplicateInstance:
            continue


def test_two_processes_that_take_over_an_id_at_once_end_with_one(
    cluster: VotingMemoryCluster,
) -> None:
    for process in ("a#1", "a#2"):
        cluster.store.delay(process, {"a#1": "a#2", "a#2": "a#1"}[process], 3)
    twins = [cluster.member("a"), cluster.member("a")]
    outcomes: set[tuple[bool, bool]] = set()
    for second in range(80):
        cluster.pass_time(1)
        taking_part = []
        for one in twins:
            try:
                taking_part.append(step(one).view is not None)
            except DuplicateInstance:
                taking_part.append(False)
        if second > 40:
            outcomes.add((taking_part[0], taking_part[1]))
    assert len(outcomes) == 1
    assert sum(outcomes.pop()) == 1


def test_a_heartbeat_is_written_each_interval_and_looks_come_in_between(
    cluster: VotingMemoryCluster,
) -> None:
    (a,) = joined(cluster, "a")
    counts = set()
    for _ in range(12):  # a minute
        cluster.pass_time(a.interval_s)
        step(a)
        seen = a.snapshot()
        assert seen is not None
        counts |= {beat.count for beat in seen.heartbeats}
    assert a.interval_s == 5
    assert len(counts) in (4, 5)
