"""What members do of votings that go on, step by step, on a store in memory."""

from dataclasses import replace

import pytest

from packhorse.topology.membership import DuplicateInstance, StoreUnavailable
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.records import StoreView
from packhorse.topology.voting.times import DEFAULT_TIMES
from tests.harness.topology.driven import ids, joined, settled, step
from tests.harness.topology.voting_clusters import VotingMemoryCluster


def seen_by(member: VotingMember) -> StoreView:
    seen = member.snapshot()
    assert seen is not None
    return seen


def test_looks_are_hurried_while_something_changes(cluster: VotingMemoryCluster) -> None:
    a, b = joined(cluster, "a", "b")
    calm, hurry = DEFAULT_TIMES.look_s, DEFAULT_TIMES.hurry_s
    assert (calm, hurry) == (5.0, 1.5)
    assert (a.interval_s, b.interval_s) == (calm, calm)
    c = cluster.member("c")
    assert c.interval_s == hurry
    step(c), step(a), step(b)
    assert (a.interval_s, b.interval_s, c.interval_s) == (hurry, hurry, hurry)
    for _ in range(25):
        cluster.pass_time(1)
        seen = [one.beat({}) for one in (a, b, c)]
    assert {ids(one) for one in seen} == {("a", "b", "c")}
    assert a.interval_s == hurry  # nobody has acknowledged it
    settled(cluster, a, b, c)
    assert (a.interval_s, b.interval_s, c.interval_s) == (calm, calm, calm)


def test_a_request_for_a_voting_is_kept_by_one_that_has_only_begun_to_look(
    cluster: VotingMemoryCluster,
) -> None:
    a, b = joined(cluster, "a", "b")
    b.start_new_voting()
    assert b.wait(0)
    assert step(b).view is not None
    step(a)
    assert (seen_by(a).votings, b.interval_s) == ((), DEFAULT_TIMES.hurry_s)


def test_the_first_member_proposes_though_another_sees_the_newcomer_before(
    cluster: VotingMemoryCluster,
) -> None:
    a, b = joined(cluster, "a", "b")
    for _ in range(25):
        cluster.pass_time(1)
        step(b), step(a)
    c = cluster.member("c")
    settled(cluster, c, b, a)
    established = seen_by(a).established
    assert established is not None
    assert established.initiator == "a"


def test_who_leaves_takes_its_votings_along(cluster: VotingMemoryCluster) -> None:
    for looks in (1, 2):  # the second look has seen what the first has proposed
        a, b, c = joined(cluster, *(f"{name}{looks}" for name in "abc"))
        a.start_new_voting()
        for _ in range(looks):
            step(a)
        a.leave()
        assert step(b).view is None
        assert seen_by(b).votings == ()
        before = cluster.clock.monotonic()
        assert ids(settled(cluster, b, c)) == (b.instance_id, c.instance_id)
        assert cluster.clock.monotonic() - before < cluster.timeout_s / 2
        b.leave(), c.leave()


def test_a_voting_in_which_a_live_member_does_not_vote_is_proposed_anew(
    cluster: VotingMemoryCluster,
) -> None:
    (a,) = joined(cluster, "a")
    silent = cluster.store.session("silent")
    mine = seen_by(a).heartbeats[0]
    member = replace(mine.member, instance_id="b", runtime_id="b1", started_ms=10**9)
    proposed = set()
    for count in range(50):
        cluster.pass_time(1)
        silent.beat(replace(mine, member=member, count=count))
        assert step(a).view is None or not count
        proposed |= {one.id for one in seen_by(a).votings}
    assert len(proposed) > 1


def test_a_voting_that_forgets_somebody_ends_with_a_no(cluster: VotingMemoryCluster) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    cluster.store.cut([cluster.processes[id(c)]], [cluster.processes[id(a)]])
    without_view = 0
    for _ in range(60):
        cluster.pass_time(1)
        step(a), step(c)
        without_view += step(b).view is None
    assert 0 < without_view < 20


def test_a_displaced_process_takes_part_again_when_the_other_has_died(
    cluster: VotingMemoryCluster,
) -> None:
    a, b = joined(cluster, "a", "b")
    again = cluster.member("a")
    settled(cluster, b, again)
    with pytest.raises(DuplicateInstance):
        a.beat({})
    seen = ()
    for _ in range(60):  # nobody drives the other one any more
        cluster.pass_time(1)
        step(b)
        try:
            seen = ids(step(a))
        except DuplicateInstance:
            continue
    assert seen == ("b", "a")


def test_who_could_write_and_not_read_does_not_know_who_lives(
    cluster: VotingMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = joined(cluster, "a", "b")

    def fails(_: object) -> StoreView:
        raise StoreUnavailable("it can't be read now")

    for _ in range(30):
        cluster.pass_time(1)
        step(b)
        with monkeypatch.context() as patch:
            patch.setattr("tests.harness.topology.voting_memory.EventualSession.read", fails)
            with pytest.raises(StoreUnavailable):
                a.beat({})
    cluster.pass_time(1)
    assert step(a).view is None
    assert ids(step(b)) == ("a", "b")
    assert seen_by(b).votings == ()
