"""Clusters that vote, for tests that drive their members step by step."""

from functools import partial

import pytest

from packhorse.db.engine import Timeouts
from packhorse.topology.membership import Membership
from packhorse.topology.patience import bookkeeper_connection
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.sql import SqlVotingStore
from tests.harness.clock import ManualClock
from tests.harness.postgres import Databases
from tests.harness.topology.driven import LeaseSqlCluster
from tests.harness.topology.voting_memory import EventualStore


class VotingMemoryCluster:
    """A store in memory; it shows everything at once until a test slows or cuts it."""

    timeout_s = 20.0

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = EventualStore(self.clock)
        self.processes: dict[int, str] = {}

    def member(self, instance_id: str, prefix: str = "1", runtime_id: str = "") -> VotingMember:
        """Start a process; it is called `<instance id>#<number>` in the store."""
        process = f"{instance_id}#{len(self.processes) + 1}"
        member = VotingMember(
            self.store.session(process),
            instance_id,
            prefix=prefix,
            clock=self.clock,
            runtime_id=runtime_id,
        )
        self.processes[id(member)] = process
        return member

    def kill(self, member: Membership) -> None:
        """Nobody drives it any more."""

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def cut(self) -> None:
        for process in self.processes.values():
            self.store.away(process)

    def heal(self) -> None:
        for process in self.processes.values():
            self.store.away(process, False)

    def close(self) -> None:
        """There is nothing to give back."""


def wait_for_busy_machine(patched: pytest.MonkeyPatch) -> None:
    """Let stores that are opened from now on wait as long as tests may stand still."""
    limits = Timeouts(60_000, 60_000, 60_000).settings
    connection = partial(
        bookkeeper_connection, patience_s=60.0, connect_timeout="60", session=limits
    )
    patched.setattr("packhorse.topology.voting.sql.bookkeeper_connection", connection)


class VotingSqlCluster:
    """A database of its own; no clock of the database decides, so none has to be moved."""

    timeout_s = 20.0

    def __init__(self, databases: Databases) -> None:
        self.clock = ManualClock()
        self._patience = pytest.MonkeyPatch()
        wait_for_busy_machine(self._patience)
        self._database = LeaseSqlCluster(databases)
        self.url = self._database.url
        self.cut, self.heal = self._database.cut, self._database.heal
        self._stores: dict[int, SqlVotingStore] = {}

    def member(self, instance_id: str) -> VotingMember:
        store = SqlVotingStore(self.url, instance_id)
        member = VotingMember(store, instance_id, clock=self.clock)
        self._stores[id(member)] = store
        return member

    def kill(self, member: Membership) -> None:
        self._stores.pop(id(member)).close()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._database.close()
        self._patience.undo()
