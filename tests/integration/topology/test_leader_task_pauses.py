"""Leader-only work: a process that is paused as it takes a task keeps nobody else from it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from psycopg import Connection

from packhorse.topology.leader import LeaderOnly, LeaseElectionOrder
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.membership import StoreUnavailable
from tests.harness.topology.lease_rows import age, states

LEADER_TASK = "cleanup"
LEASE_S = 3600.0  # beaten once, so it must outlast the test; it ends as the test ages it


class Instance:
    """A process: its membership, and its way to take the leader task."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.store = url, SqlLeaseStore(url, patience_s=20.0)
        self.member = LeaseMember(self.store, name, lease_s=LEASE_S)
        self.election_order = LeaseElectionOrder(name, self.member.runtime_id)
        self.leader_task = LeaderOnly(
            LEADER_TASK, self.election_order, lambda: psycopg.connect(url)
        )
        self.member.beat({"packhorse.duties": LEADER_TASK})

    def close(self) -> None:
        self.store.close()

    def retire(self, name: str) -> None:
        """Find its lease run out."""
        age(self.url, LEASE_S + 1, name)
        self.store.retire(self.member._who)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_it_is_declared_dead_all_the_same(
    database_url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = LeaseElectionOrder.is_first
    with closing(Instance(database_url, "a")) as a, closing(Instance(database_url, "b")) as b:

        def pauses(
            who: LeaseElectionOrder, connection: Connection, leader_task: str, *, keep: bool
        ) -> bool:
            found = requested(who, connection, leader_task, keep=keep)
            if keep and who == a.election_order:  # its row is locked until its session ends
                pool.submit(b.retire, "a").result(120)
            return found

        monkeypatch.setattr(LeaseElectionOrder, "is_first", pauses)
        with pytest.raises(StoreUnavailable):
            a.leader_task.take()
        assert states(database_url)["a"].value == "INACTIVE"
        assert b.leader_task.take() is not None
