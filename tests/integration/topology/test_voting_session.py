"""The voting store's connection: what ends a wait, and what ends a hang."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.engine import make_url

from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.voting.records import Vote
from packhorse.topology.voting.sql import SqlVotingStore
from tests.harness.cutting_proxy import cutting_proxy
from tests.harness.topology.votings import A, B, heartbeat, voting


@contextmanager
def opened(url: str, *names: str) -> Iterator[list[SqlVotingStore]]:
    """Give connected stores."""
    stores = [SqlVotingStore(url, name) for name in names]
    for store in stores:
        store.read()
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


def ends(waiting: Callable[[], object], act: Callable[[], object]) -> None:
    """Check that a wait which would last for ever ends after `act`."""
    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    act()
    thread.join(120)
    assert not thread.is_alive()


def test_a_wake_ends_the_wait_under_way_or_the_next_one(database_url: str) -> None:
    with opened(database_url, "a") as (store,):
        store.wake()
        store.wake()
        store.wait(3_600)
        ends(lambda: store.wait(3_600), store.wake)
        for _ in range(100):
            ends(lambda: store.wait(3_600), store.wake)


def test_a_store_that_has_never_connected_is_woken_too() -> None:
    store = SqlVotingStore("postgresql://nobody@localhost:1/none", "a")
    ends(lambda: store.wait(3_600), store.wake)
    store.close()


def test_what_others_change_ends_a_wait(database_url: str) -> None:
    begun = voting("v1", B, replaces="")
    with opened(database_url, "a", "b") as (a, b):
        for act in (
            lambda: b.beat(heartbeat(B)),
            lambda: b.propose(begun),
            lambda: b.promote(begun),
            lambda: b.leave("b", B.runtime_id),
        ):
            ends(lambda: a.wait(3_600), act)


def test_a_heartbeat_that_says_nothing_new_wakes_nobody(database_url: str) -> None:
    with opened(database_url, "a", "b") as (a, b):
        b.beat(heartbeat(B))
        a.wait(3_600)
        b.beat(heartbeat(B, 2))
        b.beat(heartbeat(B, 3, acknowledged="v1"))
        assert waited_out(a)


def test_a_vote_wakes_the_initiator_alone(database_url: str) -> None:
    with opened(database_url, "a", "b", "c") as (a, b, c):
        a.propose(voting("v1", A, B, replaces=""))
        for other in (b, c):
            other.wait(3_600)
        b.vote(Vote("v1", "b", True))
        a.wait(3_600)
        assert waited_out(c)
        assert waited_out(b)


def waited_out(store: SqlVotingStore) -> bool:
    """Return whether a wait ends by itself only; a hint that was sent has long arrived."""
    return not store.wait(0.3)


def test_a_network_that_is_cut_is_noticed_and_left(database_url: str) -> None:
    parts = make_url(database_url)
    with cutting_proxy(parts.host or "", parts.port or 0, seed=1, faults=0) as proxy:
        url = parts.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        with opened(url, "a") as (store,):
            store.beat(heartbeat(A))
            proxy.cut()
            with pytest.raises(StoreUnavailable):
                store.beat(heartbeat(A, 2))
            proxy.heal()
            assert store.beat(heartbeat(A, 3))
