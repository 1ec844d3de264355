"""What every store of the topology promises of the instances of one cluster."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from packhorse.topology.membership import DuplicateInstance, Membership, StoreUnavailable
from tests.harness.postgres import Databases
from tests.harness.topology.driven import (
    Cluster,
    LeaseMemoryCluster,
    LeaseSqlCluster,
    ids,
    joined,
    settled,
    step,
)
from tests.harness.topology.voting_clusters import VotingMemoryCluster, VotingSqlCluster
from tests.harness.waiting import eventually


@pytest.fixture
def lease_memory_cluster() -> LeaseMemoryCluster:
    return LeaseMemoryCluster()


@pytest.fixture
def lease_sql_cluster(databases: Databases) -> LeaseSqlCluster:
    return LeaseSqlCluster(databases)


@pytest.fixture
def voting_memory_cluster() -> VotingMemoryCluster:
    return VotingMemoryCluster()


@pytest.fixture
def voting_sql_cluster(databases: Databases) -> VotingSqlCluster:
    return VotingSqlCluster(databases)


@pytest.fixture(params=["lease_memory", "lease_sql", "voting_memory", "voting_sql"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each store in turn; `<name>_cluster` is asked for only by the tests that run on it."""
    cluster: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    yield cluster
    cluster.close()


def test_one_instance_is_a_cluster_and_leads_it(cluster: Cluster) -> None:
    seen = settled(cluster, cluster.member("a"))
    assert seen.view is not None
    (only,) = seen.view.instances
    assert (only.id, only.cluster_id, only.is_leader, only.is_local) == (
        "a",
        seen.view.id,
        True,
        True,
    )


def test_newcomers_go_last_and_the_leader_stays(cluster: Cluster) -> None:
    # Ids that sort the other way round: the order is that of joining.
    members = joined(cluster, "c", "b", "a")
    seen = [settled(cluster, *members)] + [step(member) for member in members]
    assert {ids(one) for one in seen} == {("c", "b", "a")}
    assert [[i.is_leader for i in one.view.instances] for one in seen if one.view] == [
        [True, False, False]
    ] * 4


def test_each_member_knows_which_one_it_is(cluster: Cluster) -> None:
    members = joined(cluster, "a", "b")
    for member in members:
        view = step(member).view
        assert view is not None
        assert [i.id for i in view.instances if i.is_local] == [member.instance_id]


def test_instances_that_start_together_agree_on_one_order(cluster: Cluster) -> None:
    members = [cluster.member(name) for name in "edcba"]
    order = ids(settled(cluster, *members))
    assert {ids(step(member)) for member in members} == {order}


def test_when_the_leader_leaves_the_next_one_leads_and_all_move_up(cluster: Cluster) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    a.leave()
    seen = settled(cluster, b, c)
    assert ids(seen) == ("b", "c")
    assert seen.view is not None
    assert seen.view.leader.id == "b"


def test_when_the_leader_dies_it_is_missed_after_the_timeout_and_no_sooner(
    cluster: Cluster,
) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    cluster.kill(a)
    for _ in range(4):
        cluster.pass_time(cluster.timeout_s / 10)
        assert {ids(step(b)), ids(step(c))} == {("a", "b", "c")}
    assert ids(settled(cluster, b, c)) == ("b", "c")


def test_one_that_comes_back_is_last(cluster: Cluster) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    a.leave()
    settled(cluster, b, c)
    assert ids(settled(cluster, b, c, cluster.member("a"))) == ("b", "c", "a")


def test_one_that_was_paused_for_too_long_has_lost_its_place(cluster: Cluster) -> None:
    a, b, c = joined(cluster, "a", "b", "c")
    settled(cluster, b, c)  # without a, which is as if it were paused
    resumed = step(a)
    assert resumed.view is None or not resumed.settled
    assert ids(settled(cluster, a, b, c)) == ("b", "c", "a")


def test_a_restarted_process_waits_for_its_old_self(cluster: Cluster) -> None:
    a, b = joined(cluster, "a", "b")
    cluster.kill(a)
    again = cluster.member("a")
    assert step(again).view is None
    assert ids(settled(cluster, b, again)) == ("b", "a")


def test_a_second_process_with_a_live_ones_id_takes_no_part_until_that_has_gone(
    cluster: Cluster,
) -> None:
    a, b = joined(cluster, "a", "b")
    twin = cluster.member("a")
    refused = 0
    for _ in range(25):
        try:
            assert step(twin).view is None
        except DuplicateInstance:
            refused += 1
        assert {ids(step(a)), ids(step(b))} == {("a", "b")}
        cluster.pass_time(cluster.timeout_s / 10)
    assert 1 <= refused <= 16  # none before a time-out has passed
    a.leave()
    assert _without_duplicate(cluster, b, twin) == ("b", "a")


def _without_duplicate(cluster: Cluster, other: Membership, twin: Membership) -> tuple[str, ...]:
    for _ in range(40):
        cluster.pass_time(cluster.timeout_s / 10)
        step(other)
        try:
            if step(twin).view is not None:
                return ids(settled(cluster, other, twin))
        except DuplicateInstance:
            continue
    raise AssertionError("the twin never came in")


def test_a_view_is_settled_when_all_its_instances_have_acknowledged_it(cluster: Cluster) -> None:
    (a,) = joined(cluster, "a")
    b = cluster.member("b")
    for _ in range(20):  # b never acknowledges
        seen = [step(a), b.beat({})]
        assert not any(one.settled for one in seen if ids(one) == ("a", "b"))
        cluster.pass_time(cluster.timeout_s / 10)
    assert {ids(one) for one in seen} == {("a", "b")}
    assert len({one.revision for one in seen}) == 1
    b.acknowledge(seen[1].revision)
    settled(cluster, a, b)


def test_an_outdated_acknowledgement_counts_for_nothing(cluster: Cluster) -> None:
    (a,) = joined(cluster, "a")
    old = step(a).revision
    b = cluster.member("b")
    for _ in range(20):
        seen = step(b)
        assert not (seen.settled and "a" in ids(seen))
        a.beat({})
        a.acknowledge(old)
        cluster.pass_time(cluster.timeout_s / 10)
    settled(cluster, a, b)


def test_properties_are_seen_at_the_next_beat_and_change_nothing_else(cluster: Cluster) -> None:
    a, b = joined(cluster, "a", "b")
    before = step(b)
    step(a, {"packhorse.role": "publisher", "x": "ÿ'\"\\ \n"})
    after = step(b)
    assert after.view is not None
    assert after.view.leader.properties == {"packhorse.role": "publisher", "x": "ÿ'\"\\ \n"}
    assert (after.revision, after.settled) == (before.revision, True)
    step(a, {})
    gone = step(b).view
    assert gone is not None
    assert gone.leader.properties == {}


def test_a_view_holds_for_at_most_a_timeout_after_the_last_good_beat(cluster: Cluster) -> None:
    (a,) = joined(cluster, "a")
    seen = step(a)
    now = cluster.clock.monotonic()
    assert now < seen.valid_until <= now + cluster.timeout_s


def test_a_store_that_was_away_changes_no_leader(cluster: Cluster) -> None:
    members = joined(cluster, "a", "b", "c")
    cluster.cut()
    for _ in range(12):
        cluster.pass_time(cluster.timeout_s / 4)
        for member in members:
            with pytest.raises(StoreUnavailable):
                step(member)
    cluster.heal()
    # The last one comes back first: it must not take the others, who live, for dead.
    assert ids(settled(cluster, *reversed(members)))[0] == "a"


def test_leaving_without_a_store_is_no_error(cluster: Cluster) -> None:
    a, b = joined(cluster, "a", "b")
    cluster.cut()
    a.leave()
    cluster.heal()
    with suppress(StoreUnavailable):  # its connection may have ended
        step(b)
    assert ids(settled(cluster, b)) == ("b",)


def test_the_cluster_keeps_its_id_when_all_go_and_come(cluster: Cluster) -> None:
    members = joined(cluster, "a", "b")
    first = settled(cluster, *members).view
    for member in members:
        member.leave()
    cluster.pass_time(3 * cluster.timeout_s)
    second = settled(cluster, cluster.member("c")).view
    assert first is not None
    assert second is not None
    assert (first.id, second.ids) == (second.id, ("c",))


def test_a_wait_ends_when_it_is_woken(cluster: Cluster) -> None:
    (a,) = joined(cluster, "a")
    with waiting(a):
        a.wake()


def test_a_wait_ends_when_another_one_joins(cluster: Cluster) -> None:
    (a,) = joined(cluster, "a")
    with waiting(a):
        step(cluster.member("b"))


def test_a_wait_ends_with_its_time(cluster: Cluster) -> None:
    (a,) = joined(cluster, "a")
    with waiting(a, 0.01) as thread:

        def has_ended() -> bool:
            cluster.pass_time(0.01)
            return not thread.is_alive()

        eventually(has_ended, interval=0.005)


@contextmanager
def waiting(member: Membership, seconds: float = 3_600) -> Iterator[threading.Thread]:
    """Let a thread wait, by default far longer than the test would; it must end with the block."""
    member.wait(0)  # what was there to hear is heard
    thread = threading.Thread(target=member.wait, args=(seconds,), daemon=True)
    thread.start()
    yield thread
    thread.join(120)
    assert not thread.is_alive()
