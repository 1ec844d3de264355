"""Leader-only work: whatever the order of a take-over and the work, only the holder's commits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.topology import leader
from packhorse.topology.leader import LeaderOnly, LeaseElectionOrder, NotLeader, Token
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.membership import StoreUnavailable
from tests.harness.topology.lease_rows import age, blocked_by, states
from tests.harness.waiting import eventually

pytestmark = pytest.mark.usefixtures("paused_takeovers")

LEADER_TASK = "cleanup"
LEASE_S = 3600.0  # beaten once, so it must outlast the test; it ends as a test ages it


@dataclass
class Instance:
    """A process: its membership, and its way to take the leader task."""

    url: str
    name: str
    leader_tasks: str = LEADER_TASK

    def __post_init__(self) -> None:
        self.store = SqlLeaseStore(self.url, patience_s=20.0)
        self.member = LeaseMember(self.store, self.name, lease_s=LEASE_S)
        self.election_order = LeaseElectionOrder(self.name, self.member.runtime_id)
        self.leader_task = LeaderOnly(
            LEADER_TASK, self.election_order, lambda: psycopg.connect(self.url)
        )
        self.beat()

    def beat(self) -> None:
        self.member.beat({"packhorse.duties": self.leader_tasks})

    def take(self) -> Token:
        token = self.leader_task.take()
        assert token is not None
        return token

    def retire(self, *names: str) -> None:
        """Find the leases of these run out."""
        age(self.url, LEASE_S + 1, *names)
        self.store.retire(self.member._who)


@dataclass
class Site:
    url: str

    def __post_init__(self) -> None:
        self.instances: list[Instance] = []
        with psycopg.connect(self.url) as connection:
            connection.execute("CREATE TABLE work (n serial, epoch bigint)")
            connection.execute("GRANT ALL ON work, work_n_seq TO packhorse_bookkeeper")

    def start(self, name: str, leader_tasks: str = LEADER_TASK) -> Instance:
        self.instances.append(Instance(self.url, name, leader_tasks))
        return self.instances[-1]

    def transaction(self) -> Connection:
        """Return a connection in a transaction as the bookkeeper."""
        connection = psycopg.connect(self.url)
        act_as(connection, BOOKKEEPER)
        return connection

    def done(self) -> list[int]:
        """Return the epochs of the work that was committed, in its order."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT epoch FROM work ORDER BY n").fetchall()
        return [epoch for (epoch,) in rows]


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    site = Site(database_url)
    yield site
    for instance in site.instances:
        instance.store.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def work(connection: Connection, token: Token) -> None:
    token.check(connection)
    connection.execute("INSERT INTO work (epoch) VALUES (%s)", (token.epoch,))


def refused(site: Site, token: Token) -> bool:
    with site.transaction() as connection:
        try:
            token.check(connection)
        except NotLeader:
            return True
    return False


def test_the_first_that_announces_a_leader_task_has_it(site: Site) -> None:
    a, b, c = site.start("a", "other"), site.start("b", f"other, {LEADER_TASK}"), site.start("c")
    assert [one.leader_task.take() is not None for one in (a, b, c)] == [False, True, False]


def test_taking_again_is_no_change(site: Site) -> None:
    a = site.start("a")
    assert a.take() == a.take()
    assert a.take().epoch == 1


def test_nobody_else_has_it_while_the_holder_lives(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    token = a.take()
    assert b.leader_task.take() is None
    with site.transaction() as connection:
        work(connection, token)
    assert site.done() == [token.epoch]


def test_a_holder_that_has_left_is_followed_at_once(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    old = a.take()
    a.member.leave()
    new = b.take()
    assert new.epoch > old.epoch
    assert refused(site, old)
    assert not refused(site, new)


def test_an_instance_whose_lease_has_run_out_takes_nothing(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    age(site.url, LEASE_S + 1, "a")
    assert a.leader_task.take() is None
    assert b.leader_task.take() is None  # a may still come back
    a.beat()
    assert a.leader_task.take() is not None


def test_a_holder_that_was_away_and_came_back_needs_a_new_token(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    old = a.take()
    b.retire("a")
    a.beat()
    b.member.leave()
    assert refused(site, old)
    assert not refused(site, a.take())


def test_a_holder_paused_in_its_transaction_never_commits(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    token = a.take()
    with closing(site.transaction()) as paused:
        work(paused, token)
        b.retire("a")  # ends the session, for its locks are in the way

        def is_retired() -> bool:
            b.retire()
            return states(site.url)["a"].value == "INACTIVE"

        eventually(is_retired, "the session that was ended has let go")
        with site.transaction() as connection:
            work(connection, b.take())
        with pytest.raises(psycopg.OperationalError):
            paused.execute("SELECT 1")
    assert site.done() == [b.take().epoch]


def test_a_holder_that_is_paused_before_its_check_is_refused(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    token = a.take()
    with closing(site.transaction()) as paused:
        paused.execute("INSERT INTO work (epoch) VALUES (%s)", (token.epoch,))
        b.retire("a")
        b.take()
        with pytest.raises(NotLeader):
            token.check(paused)
    assert site.done() == []


def test_work_of_others_goes_on_when_a_holder_is_retired(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    a.take()
    with site.transaction() as other:
        other.execute("SELECT 1")
        b.retire("a")
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_nobody_is_first_while_the_former_ones_backlog_is_left(site: Site) -> None:
    a, b = site.start("a"), site.start("b")
    old = a.take()
    with psycopg.connect(site.url) as stranger:  # holds the row, and does no leader task
        stranger.execute("SELECT FROM topology.duty FOR UPDATE")
        b.retire("a")
        assert states(site.url)["a"].value == "DEACTIVATING"
        assert b.leader_task.take() is None
    b.retire()
    assert b.take().epoch > old.epoch


def test_a_take_over_from_a_live_holder_waits_for_its_commit(
    site: Site, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "_PATIENCE", "60s")
    a, b = site.start("a", ""), site.start("b")
    old = b.take()
    a.leader_tasks = LEADER_TASK
    a.beat()
    with site.transaction() as connection:
        work(connection, old)
        taken = pool.submit(a.leader_task.take)
        blocked_by(site.url, connection)
        assert not taken.done()
    new = taken.result(120)
    assert new is not None
    assert new.epoch > old.epoch
    assert refused(site, old)
    assert site.done() == [old.epoch]


def test_a_take_over_gives_up_on_a_holder_that_does_not_commit(site: Site) -> None:
    a, b = site.start("a", ""), site.start("b")
    old = b.take()
    a.leader_tasks = LEADER_TASK
    a.beat()
    with site.transaction() as connection:
        work(connection, old)
        assert a.leader_task.take() is None
    assert a.leader_task.take() is not None


@pytest.mark.parametrize(("ends", "is_refused"), [("COMMIT", True), ("ROLLBACK", False)])
def test_a_check_during_a_take_over_waits_for_its_end(
    site: Site, pool: ThreadPoolExecutor, ends: str, is_refused: bool
) -> None:
    old = site.start("a").take()
    with psycopg.connect(site.url) as taking:
        taking.execute("UPDATE topology.duty SET holder = 'b', epoch = epoch + 1")
        checked = pool.submit(refused, site, old)
        blocked_by(site.url, taking)
        taking.execute(ends)
    assert checked.result(120) is is_refused


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_does_not_hide_a_take_over(site: Site, isolation: str) -> None:
    a, b = site.start("a"), site.start("b")
    old = a.take()
    with psycopg.connect(site.url) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        act_as(connection, BOOKKEEPER)
        connection.execute("SELECT FROM work")
        a.member.leave()
        b.take()
        with pytest.raises(NotLeader):
            old.check(connection)
        connection.rollback()


@pytest.mark.parametrize(
    "given",
    [{"host": "127.0.0.1", "port": 1}, {"options": "-c default_transaction_read_only=on"}],
    ids=["away", "read-only"],
)
def test_a_database_that_is_away_is_said_to_be(site: Site, given: dict[str, Any]) -> None:
    order = site.start("a").election_order
    leader_task = LeaderOnly(LEADER_TASK, order, lambda: psycopg.connect(site.url, **given))
    with pytest.raises(StoreUnavailable):
        leader_task.take()


def look_only(token: Token, connection: Connection) -> None:
    """A broken build: looks, and keeps nothing."""
    row = connection.execute(
        "SELECT FROM topology.duty WHERE name = %s AND epoch = %s", (token.leader_task, token.epoch)
    ).fetchone()
    if row is None:
        raise NotLeader("")


@pytest.mark.proof
def test_a_check_that_only_looks_is_caught(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Token, "check", look_only)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_holder_paused_in_its_transaction_never_commits(site)
