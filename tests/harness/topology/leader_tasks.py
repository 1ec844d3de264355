"""Leader-only work in a simulation: the real `LeaderOnly` and `Token` over a row in memory.

A transaction of work checks its token, may be paused or cut off there, and commits later.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from packhorse.topology.leader import LeaderOnly, NotLeader, Token
from packhorse.topology.lease.store import Incarnation, InstanceState
from packhorse.topology.membership import StoreUnavailable
from tests.harness.topology.lease_memory import LeaseMemory
from tests.harness.topology.process import SimulatedProcess
from tests.harness.topology.wire import Network, Wire
from tests.harness.topology.world import World

LEADER_TASK = "cleanup"
WORK_S = 2.5


@dataclass
class LeaderTaskTable:
    """The row of the one leader task, the transactions that hold it, and what was written."""

    memory: LeaseMemory
    world: World
    holder: tuple[str, str] = ("", "")
    epoch: int = 0
    working: set[str] = field(default_factory=set)
    """Runtime ids whose open transaction has checked its token."""
    written: list[tuple[int, str]] = field(default_factory=list)

    def revoke(self, who: Incarnation) -> None:
        """Deal with the backlog of an instance that is declared dead."""
        self.working.discard(who.runtime_id)
        if self.holder[1] == who.runtime_id:
            self.holder, self.epoch = ("", ""), self.epoch + 1

    def write(self, epoch: int, runtime_id: str) -> None:
        """Accept a write; the row's epochs must be in order, and each one process's."""
        if self.written:
            last, by = self.written[-1]
            if epoch < last or (epoch == last and runtime_id != by):
                self.world.fail(f"{runtime_id} wrote under {epoch} after {by} under {last}")
        self.written.append((epoch, runtime_id))


@dataclass(frozen=True)
class Rows:
    rows: Sequence[tuple[Any, ...]] = ()

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> Sequence[tuple[Any, ...]]:
        return self.rows


@dataclass
class LeaderTaskConnection:
    """Answers the statements of `packhorse.topology.leader` from the table in memory."""

    table: LeaderTaskTable
    runtime_id: str

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def execute(self, query: Any, parameters: Sequence[Any] = ()) -> Rows:
        statement = " ".join(str(query).split())
        if statement.startswith("SELECT epoch FROM topology.duty"):
            _, holder, runtime_id = parameters
            held = self.table.holder == (holder, runtime_id)
            return Rows([(self.table.epoch,)] if held else [])
        if statement.startswith("INSERT INTO topology.duty"):
            return self._take_over(*parameters)
        if statement.startswith("SELECT FROM topology.duty"):
            _, holder, runtime_id, epoch = parameters
            held = (self.table.holder, self.table.epoch) == ((holder, runtime_id), epoch)
            return Rows([()] if held else [])
        return Rows()

    def _take_over(self, _name: str, holder: str, runtime_id: str) -> Rows:
        if self.table.working - {runtime_id}:
            raise psycopg.errors.LockNotAvailable("another transaction holds the row")
        self.table.holder, self.table.epoch = (holder, runtime_id), self.table.epoch + 1
        return Rows([(self.table.epoch,)])


@dataclass
class MemoryElectionOrder:
    """Who is first, by the rows of the leases."""

    table: LeaderTaskTable
    instance_id: str
    runtime_id: str

    def is_first(self, _connection: Any, _leader_task: str, *, keep: bool) -> bool:
        memory = self.table.memory
        own = memory.own(Incarnation(self.instance_id, self.runtime_id))
        if own is None or own.lease_end <= memory.now():
            return False
        there = (row for row in memory.rows.values() if row.state is not InstanceState.INACTIVE)
        return own.joined == min(row.joined for row in there)


class LeaderTaskSession:
    """What a process asks of the database for its leader task; each step is atomic."""

    def __init__(self, table: LeaderTaskTable, process: SimulatedProcess, *, checks: bool) -> None:
        self._table, self._runtime_id, self._checks = table, process.name, checks
        election_order = MemoryElectionOrder(table, process.machine, process.name)
        self._leader_task = LeaderOnly(LEADER_TASK, election_order, self._connected)  # type: ignore[arg-type]

    @contextmanager
    def _connected(self) -> Iterator[LeaderTaskConnection]:
        yield LeaderTaskConnection(self._table, self._runtime_id)

    def take(self) -> Token | None:
        return self._leader_task.take()

    def begin(self, token: Token) -> bool:
        """Check the token; from now on the transaction holds the row."""
        self._table.working.discard(self._runtime_id)  # what the last answer did not say
        try:
            if self._checks:
                token.check(LeaderTaskConnection(self._table, self._runtime_id))  # type: ignore[arg-type]
        except NotLeader:
            return False
        self._table.working.add(self._runtime_id)
        return True

    def commit(self, token: Token) -> None:
        """Commit what was begun, unless the session was ended meanwhile."""
        if self._runtime_id in self._table.working or not self._checks:
            self._table.working.discard(self._runtime_id)
            self._table.write(token.epoch, self._runtime_id)


def do_leader_tasks(
    table: LeaderTaskTable,
    process: SimulatedProcess,
    network: Network,
    world: World,
    *,
    checks: bool,
) -> None:
    """Let a process work for as long as it lives, whenever the leader task is its own."""
    session: Any = Wire(LeaderTaskSession(table, process, checks=checks), process, network, world)

    def work() -> None:
        while True:
            try:
                token = session.take()
                if token is not None and session.begin(token):
                    session.commit(token)
            except StoreUnavailable:
                pass
            finally:
                table.working.discard(process.name)
            process.nap(WORK_S)

    process.also(work)
