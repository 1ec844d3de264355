"""The lease store in Postgres: what happens when two do something at the same time."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
import pytest

from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.lease.store import Incarnation, InstanceState, JoinOutcome, Renewal
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.properties import LEADER_PREFIX
from tests.harness.postgres import Databases, running_postgres
from tests.harness.topology.driven import ids, step
from tests.harness.topology.lease_rows import age, blocked_by, rows, states
from tests.harness.waiting import pause

LEASE_S, PATIENCE_S = 3600.0, 20.0  # a lease is renewed once, and ends as a test ages it
A, B, C = (Incarnation(name, f"run of {name}") for name in "abc")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@contextmanager
def stores(url: str, *members: Incarnation) -> Iterator[list[SqlLeaseStore]]:
    """Give a store for each incarnation, which has joined in this order."""
    opened = [SqlLeaseStore(url, patience_s=PATIENCE_S) for _ in members]
    try:
        for store, who in zip(opened, members, strict=True):
            assert store.join(renewal(who)) is JoinOutcome.JOINED
        yield opened
    finally:
        for store in opened:
            store.close()


def renewal(who: Incarnation, **more: object) -> Renewal:
    usual = {"who": who, "lease_s": LEASE_S, "acknowledged": 0, "properties": None}
    return Renewal(**usual | more)  # type: ignore[arg-type]


def test_a_renewal_that_comes_during_the_retirement_is_refused(
    database_url: str, pool: ThreadPoolExecutor
) -> None:
    with stores(database_url, A, B) as (a, _), psycopg.connect(database_url) as other:
        age(database_url, LEASE_S + 1, "a")
        other.execute("UPDATE topology.instance SET state = 'DEACTIVATING' WHERE id = 'a'")
        renewed = pool.submit(a.renew, renewal(A))
        blocked_by(database_url, other)
        other.commit()
        assert renewed.result(120) is None


def test_a_retirement_that_comes_during_the_renewal_spares_the_instance(
    database_url: str, pool: ThreadPoolExecutor
) -> None:
    with stores(database_url, A, B) as (_, b), psycopg.connect(database_url) as other:
        age(database_url, LEASE_S + 1, "a")
        other.execute(
            "UPDATE topology.instance SET lease_end = clock_timestamp() + '1h' WHERE id = 'a'"
        )
        retired = pool.submit(b.retire, B)
        blocked_by(database_url, other)
        other.commit()
        retired.result(120)
        assert states(database_url) == {"a": InstanceState.ACTIVE, "b": InstanceState.ACTIVE}


def test_many_that_see_an_expiry_at_the_same_time_make_one_transition(
    database_url: str, pool: ThreadPoolExecutor
) -> None:
    others = [Incarnation(f"i{number}", "r") for number in range(8)]
    with stores(database_url, A, *others) as (_, *opened):
        before = opened[0].look()
        age(database_url, LEASE_S + 1, "a")
        start = threading.Barrier(len(others))

        def retire(store: SqlLeaseStore, who: Incarnation) -> None:
            start.wait(120)
            store.retire(who)

        done: list[Future[None]] = [
            pool.submit(retire, *one) for one in zip(opened, others, strict=True)
        ]
        for one in done:
            one.result(120)
        after = opened[0].look()
    assert before is not None
    assert after is not None
    assert after.seq == before.seq + 1
    assert states(database_url)["a"] is InstanceState.INACTIVE


def test_many_that_join_at_the_same_time_get_different_places(
    database_url: str, pool: ThreadPoolExecutor
) -> None:
    names = [f"i{number}" for number in range(8)]
    opened = [SqlLeaseStore(database_url, patience_s=PATIENCE_S) for _ in names]
    start = threading.Barrier(len(names))

    def join(store: SqlLeaseStore, name: str) -> JoinOutcome:
        start.wait(120)
        return store.join(renewal(Incarnation(name, "r")))

    assert set(pool.map(join, opened, names)) == {JoinOutcome.JOINED}
    seen = [store.look() for store in opened]
    for store in opened:
        store.close()
    assert len(set(map(str, [(one.seq, one.entries) for one in seen if one]))) == 1
    assert seen[0] is not None
    assert sorted(entry.joined for entry in seen[0].entries) == list(range(1, 9))
    assert sorted(entry.number for entry in seen[0].entries) == list(range(1, 9))


def test_a_judge_with_half_a_lease_left_retires_nobody(database_url: str) -> None:
    with stores(database_url, A, B) as (_, b):
        age(database_url, LEASE_S + 1, "a")
        age(database_url, LEASE_S / 2 + 1, "b")
        b.retire(B)
        assert states(database_url)["a"] is InstanceState.ACTIVE
        b.renew(renewal(B))
        b.retire(B)
        assert states(database_url)["a"] is InstanceState.INACTIVE


def test_a_judge_that_was_retired_itself_retires_nobody(database_url: str) -> None:
    with stores(database_url, A, B, C) as (_, b, c):
        age(database_url, LEASE_S + 1, "b")
        c.retire(C)
        age(database_url, LEASE_S + 1, "a")
        b.retire(B)
        assert states(database_url)["a"] is InstanceState.ACTIVE


def test_a_clock_that_was_set_back_is_made_good(database_url: str) -> None:
    with stores(database_url, A, B) as (_, b):
        age(database_url, -3600, "a")
        pulse = b.renew(renewal(B))
        assert pulse is not None
        assert pulse.overdue
        b.retire(B)
        age(database_url, LEASE_S + 1, "a")
        b.retire(B)
        assert states(database_url)["a"] is InstanceState.INACTIVE


def test_the_last_acknowledgement_wakes_those_that_wait(
    database_url: str, pool: ThreadPoolExecutor
) -> None:
    with stores(database_url, A, B) as (a, b):
        a.renew(renewal(A, acknowledged=2))
        b.wait(0)
        a.wait(0)
        waiting = pool.submit(a.wait, 3600)
        b.renew(renewal(B, acknowledged=2, announce=True))
        waiting.result(120)


def test_a_hint_that_comes_while_the_connection_is_used_is_heard(
    database_url: str, pool: ThreadPoolExecutor
) -> None:
    """The statement may have looked before what it hints at."""
    with stores(database_url, A, B) as (a, b):
        a.wait(0)
        b.renew(renewal(B, properties={"changed": "now"}))
        a.look()
        waiting = pool.submit(a.wait, 3600)
        try:
            waiting.result(120)
        finally:
            a.wake()


def test_a_session_that_does_not_get_its_role_is_not_used(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqlLeaseStore(database_url, patience_s=PATIENCE_S)
    with monkeypatch.context() as patch:
        patch.setattr("packhorse.topology.patience.BOOKKEEPER", "nobody")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="nobody"):
                store.look()
    assert store.join(renewal(A)) is JoinOutcome.JOINED
    store.close()


@pytest.mark.parametrize(("apart", "kept"), [("1 hour", 167), ("1 second", 500)])
def test_the_long_gone_and_the_too_many_are_forgotten(
    database_url: str, apart: str, kept: int
) -> None:
    with stores(database_url, A), psycopg.connect(database_url) as connection:
        connection.execute(
            """
            INSERT INTO topology.instance
                (id, runtime_id, number, joined, state, lease_end, lease_s, changed_at)
            SELECT 'gone' || n, 'r', 1000 + n, 0, 'INACTIVE', now(), 10, now() - n * %s::interval
            FROM generate_series(1, 600) n
            """,
            (apart,),
        )
        connection.commit()
        with stores(database_url, B):
            pass
    gone = {row[0] for row in rows(database_url)} - {"a", "b"}
    assert gone == {f"gone{number}" for number in range(1, kept + 1)}


def test_a_row_is_bounded_whoever_writes_it(database_url: str) -> None:
    with stores(database_url, A) as (a,):
        with pytest.raises(StoreUnavailable, match="properties"):
            a.renew(renewal(A, properties={"x": "y" * 600_000}))
        assert a.renew(renewal(A, properties={"x": "y" * 400_000})) is not None
    store = SqlLeaseStore(database_url, patience_s=PATIENCE_S)
    with pytest.raises(StoreUnavailable, match="id_check"):
        store.join(renewal(Incarnation("x" * 201, "r")))
    store.close()


def test_what_is_no_text_is_no_property(database_url: str) -> None:
    with stores(database_url, A) as (a,), psycopg.connect(database_url) as stranger:
        stranger.execute("""UPDATE topology.instance SET properties = '{"x": 1, "y": "z"}'""")
        stranger.commit()
        state = a.look()
        assert state is not None
        assert state.entries[0].properties == {"y": "z"}
        stranger.execute("UPDATE topology.instance SET properties = '[1]'")
        stranger.commit()
        assert a.look() is not None


def test_a_database_that_does_not_answer_is_not_waited_for(database_url: str) -> None:
    with stores(database_url, A) as (a,), psycopg.connect(database_url) as other:
        (pid,) = other.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'packhorse-topology'"
        ).fetchone() or (0,)
        a._session._connection.patience_s = 1.0  # the next one has its own again
        pause(pid)
        try:
            with pytest.raises(StoreUnavailable):
                a.renew(renewal(A))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert a.renew(renewal(A)) is not None


def test_a_restart_of_the_database_during_a_beat_changes_nothing() -> None:
    with running_postgres() as server:
        url = Databases(server).new()
        opened = [SqlLeaseStore(url, patience_s=PATIENCE_S) for _ in "abc"]
        named = zip(opened, "abc", strict=True)
        members = [LeaseMember(store, name, lease_s=LEASE_S) for store, name in named]
        before = [step(member) for member in members][-1]
        ended = threading.Event()
        beating = threading.Thread(target=_beat_until, args=(ended, members[1]))
        beating.start()
        server.stop("immediate")
        server.start()
        ended.set()
        beating.join(120)
        for member in (*members[::-1], *members):
            with suppress(StoreUnavailable):  # the connection may be that of before the restart
                step(member)
        after = [step(member) for member in members]
        assert [one.revision for one in after] == [before.revision] * 3
        assert ids(after[0]) == ("a", "b", "c")
        for store in opened:
            store.close()


def _beat_until(ended: threading.Event, member: LeaseMember) -> None:
    while not ended.is_set():
        with suppress(StoreUnavailable):
            step(member)


def test_a_preferred_one_overtakes_nobody_that_takes_a_leader_task_now(database_url: str) -> None:
    def active() -> list[str]:
        return [name for name, state, _ in rows(database_url) if state == "ACTIVE"]

    with stores(database_url, A, B, C) as (a, b, c), psycopg.connect(database_url) as taking:
        c.renew(renewal(C, properties={LEADER_PREFIX: "01"}))
        taking.execute("SELECT FROM topology.instance WHERE id = 'b' FOR SHARE")
        a.leave(A)
        assert active() == ["b", "c"]
        taking.rollback()
        assert a.join(renewal(A)) is JoinOutcome.JOINED
        assert active() == ["b", "c", "a"]
        a.renew(renewal(A, properties={LEADER_PREFIX: "0"}))
        b.leave(B)
        assert active() == ["a", "c"]
