"""What the voting store on Postgres adds to the contract of memberships."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.topology.leader import LeaderOnly, NotLeader, VotingElectionOrder
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.records import Heartbeat, Member, StoreView, Vote, Voting
from packhorse.topology.voting.sql import SqlVotingStore
from tests.harness.postgres import Databases
from tests.harness.topology.driven import settled, step
from tests.harness.topology.voting_clusters import VotingSqlCluster, wait_for_busy_machine
from tests.harness.topology.votings import A, B, C, D, heartbeat, voting

pytestmark = pytest.mark.usefixtures("paused_takeovers")

E = Member("e", "e1", "1", 5)


class Stores:
    """Sessions with one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[SqlVotingStore] = []

    def open(self, name: str) -> SqlVotingStore:
        self._opened.append(SqlVotingStore(self.url, name))
        return self._opened[-1]

    def won(self, id_: str, *members: Member, replaces: str = "") -> Voting:
        """Leave a voting in the store to which all have said yes."""
        begun = voting(id_, *members, replaces=replaces)
        session = self.open("setup")
        session.propose(begun)
        for member in members:
            session.vote(Vote(id_, member.instance_id, True))
        return begun

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests pause between two statements, and nobody waits for them."""
    wait_for_busy_machine(monkeypatch)


@pytest.fixture
def stores(database_url: str) -> Iterator[Stores]:
    stores = Stores(database_url)
    yield stores
    stores.close()


@pytest.fixture
def cluster(databases: Databases) -> Iterator[VotingSqlCluster]:
    cluster = VotingSqlCluster(databases)
    yield cluster
    cluster.close()


def test_start_times_go_up_though_the_databases_clock_goes_back(stores: Stores) -> None:
    store = stores.open("a")
    first = store.start_time()
    with psycopg.connect(stores.url) as connection:
        connection.execute("UPDATE topology.last_start SET started_ms = started_ms + 3600000")
    later = [stores.open(name).start_time() for name in "bc"]
    assert later == [first + 3_600_001, first + 3_600_002]
    with psycopg.connect(stores.url) as connection:
        connection.execute("UPDATE topology.last_start SET started_ms = 5")
    assert store.start_time() >= first  # it is the database's clock otherwise


def test_one_moment_is_read_with_everything_in_it(stores: Stores) -> None:
    store = stores.open("a")
    store.start_time()
    assert store.beat(heartbeat(A, 7, "v1"))
    stores.won("v0", A)
    assert store.promote(voting("v0", A, replaces=""))
    watching = stores.open("watching")  # knows a view, and gets what is new
    assert watching.read().previous is None
    stores.won("v1", A, replaces="v0")
    assert store.promote(voting("v1", A, replaces="v0"))
    assert watching.read().previous == voting("v0", A, replaces="")
    stores.won("v2", A, B, replaces="v1")
    assert store.promote(voting("v2", A, B, replaces="v1"))
    store.propose(voting("v3", A, B, C, replaces="v2"))
    store.vote(Vote("v3", "c", False))
    seen = stores.open("other").read()
    assert seen == StoreView(
        cluster_id=seen.cluster_id,
        heartbeats=(heartbeat(A, 7, "v1"),),
        votings=(voting("v3", A, B, C, replaces="v2"),),
        votes=frozenset({Vote("v3", "a", True), Vote("v3", "c", False)}),
        established=voting("v2", A, B, replaces="v1"),
        previous=voting("v1", A, replaces="v0"),
    )
    assert seen.cluster_id
    assert watching.read() == watching.read() == seen


def test_a_heartbeat_of_another_process_is_written_over_only_when_it_is_named(
    stores: Stores,
) -> None:
    store, again = stores.open("a"), Member("a", "a2", "0", 5)
    said = Heartbeat(again, 7, "v1", {"new": "1"})
    assert store.beat(heartbeat(A))
    assert not store.beat(heartbeat(again))
    assert not store.beat(heartbeat(again), over="another")
    assert store.beat(heartbeat(A))
    assert stores.open("a").beat(said, over=A.runtime_id)
    assert not store.beat(heartbeat(A, 2))
    assert not store.beat(heartbeat(A, 3, "v1"))
    store.leave("a", A.runtime_id)  # not its own any more
    assert store.read().heartbeats == (said,)


def test_of_two_first_views_one_is_promoted(stores: Stores) -> None:
    begun = [stores.won("v1", A), stores.won("v2", B)]
    outcomes = [stores.open("x").promote(one) for one in begun]
    assert outcomes == [True, False]
    seen = stores.open("x").read()
    assert seen.established == begun[0]
    assert seen.previous is None
    assert seen.votings == (begun[1],)


def test_first_views_that_are_promoted_at_the_same_time_are_not_both(stores: Stores) -> None:
    opened = [stores.open(name) for name in "xyz"]
    for round_ in range(5):
        begun = [stores.won(f"{round_}-{name}", A) for name in "xyz"]
        with psycopg.connect(stores.url) as connection:
            connection.execute("DELETE FROM topology.established_view")
        promotions = [partial(s.promote, one) for s, one in zip(opened, begun, strict=True)]
        assert sorted(at_once(promotions)) == [False, False, True]
        assert len(opened[0].read().votings) == 2 * (round_ + 1)


def at_once(acts: Sequence[Callable[[], bool]]) -> list[bool]:
    gate = threading.Barrier(len(acts))

    def run(act: Callable[[], bool]) -> bool:
        gate.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_what_was_withdrawn_or_refused_or_outrun_is_not_promoted(stores: Stores) -> None:
    store = stores.open("a")
    withdrawn, outrun = stores.won("v1", A), stores.won("v2", A, replaces="elsewhere")
    refused = voting("v3", A, B, replaces="")
    store.propose(refused)
    store.vote(Vote("v3", "b", False))
    store.vote(Vote("v3", "b", True))  # the first one counts
    store.withdraw("v1")
    assert {one.id for one in store.read().votings} == {"v2", "v3"}
    store.vote(Vote("v1", "b", True))  # too late, and no error
    assert [store.promote(one) for one in (withdrawn, outrun, refused)] == [False] * 3
    assert store.read().established is None


def test_heartbeats_of_long_ago_go_with_the_next_view(stores: Stores) -> None:
    store, again = stores.open("a"), stores.open("d")
    for one in (E, A, B, C):
        store.beat(heartbeat(one))
    again.beat(heartbeat(D))
    with psycopg.connect(stores.url) as connection:
        connection.execute(
            "UPDATE topology.heartbeat SET beaten_at = beaten_at - interval '2 days' "
            "WHERE instance_id <> 'b'"
        )
    again.beat(heartbeat(D, 2))  # nothing but its count is new
    store.beat(heartbeat(E, 2))
    assert store.promote(stores.won("v1", A))
    assert {one.member for one in store.read().heartbeats} == {A, B, D, E}


@contextmanager
def working(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        act_as(connection, BOOKKEEPER)
        yield connection


def leader_task_of(cluster: VotingSqlCluster, member: VotingMember) -> LeaderOnly:
    who = VotingElectionOrder(member.instance_id, member.runtime_id)
    return LeaderOnly("cleanup", who, lambda: psycopg.connect(cluster.url))


def test_a_leader_task_is_the_first_members_that_does_it(cluster: VotingSqlCluster) -> None:
    a, b, c = (cluster.member(name) for name in "abc")
    settled(cluster, a, b, c)
    for member, leader_tasks in ((a, ""), (b, "other, cleanup"), (c, "cleanup")):
        step(member, {"packhorse.duties": leader_tasks})
    leader_tasks = [leader_task_of(cluster, member) for member in (a, b, c)]
    taken = [leader_task.take() for leader_task in leader_tasks]
    assert [token is not None for token in taken] == [False, True, False]
    assert leader_tasks[1].take() == taken[1]


def test_the_work_of_one_that_was_voted_out_fails(cluster: VotingSqlCluster) -> None:
    a, b = joined_with_leader_task(cluster, "a", "b")
    token = leader_task_of(cluster, a).take()
    assert token is not None
    take_over(cluster, b)  # a is paused
    with working(cluster.url) as connection, pytest.raises(NotLeader):
        token.check(connection)


def test_work_that_its_paused_holder_has_begun_ends_with_the_next_view(
    cluster: VotingSqlCluster,
) -> None:
    a, b = joined_with_leader_task(cluster, "a", "b")
    token = leader_task_of(cluster, a).take()
    assert token is not None
    with psycopg.connect(cluster.url) as connection:
        act_as(connection, BOOKKEEPER)
        token.check(connection)
        take_over(cluster, b)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_who_can_not_end_the_work_of_the_left_out_promotes_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or work would go on that nobody else ends: only one process learns of it."""
    store = stores.open("a")
    first = stores.won("v1", A, B)
    assert store.promote(first)
    second = stores.won("v2", A, replaces="v1")

    def fails(*_: object) -> None:
        raise psycopg.OperationalError("the process is killed here")

    with monkeypatch.context() as patch:
        patch.setattr("packhorse.topology.voting.sql.end_sessions", fails)
        with pytest.raises(StoreUnavailable):
            store.promote(second)
    assert store.read().established == first
    assert store.promote(second)


def joined_with_leader_task(cluster: VotingSqlCluster, *names: str) -> list[VotingMember]:
    members = [cluster.member(name) for name in names]
    settled(cluster, *members)
    for member in members:
        step(member, {"packhorse.duties": "cleanup"})
    return members


def take_over(cluster: VotingSqlCluster, member: VotingMember) -> None:
    """Drive the only live member until the leader task is its own."""
    leader_task = leader_task_of(cluster, member)
    for _ in range(40):
        cluster.pass_time(2)
        step(member, {"packhorse.duties": "cleanup"})
        if leader_task.take() is not None:
            return
    raise AssertionError("the leader task was never free")
