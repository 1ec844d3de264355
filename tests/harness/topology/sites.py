"""The two kinds of cluster that a simulation can have, and what each store says was agreed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from packhorse.topology.events import EventFlow
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.store import Incarnation, InstanceState
from packhorse.topology.listeners import ViewMailbox
from packhorse.topology.membership import Membership
from packhorse.topology.voting.member import VotingMember
from packhorse.topology.voting.records import Vote
from tests.harness.topology.checks import Agreed
from tests.harness.topology.leader_tasks import LeaderTaskTable
from tests.harness.topology.lease_memory import LeaseMemory
from tests.harness.topology.process import SimulatedProcess
from tests.harness.topology.voting_memory import EventualStore, Key
from tests.harness.topology.wire import Network, Wire
from tests.harness.topology.world import MachineClock, World

LEASE_S = 10.0
VOTING_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Build:
    """The code under test; a test that checks the checks puts something broken here."""

    flow: Callable[[], EventFlow] = EventFlow
    lease: Callable[..., Membership] = LeaseMember
    voting: Callable[..., Membership] = VotingMember
    session: Callable[[Any], Any] = lambda session: session
    """The store as a process has it, behind the network."""
    mailbox: Callable[[], ViewMailbox] = ViewMailbox
    checks_tokens: bool = True


class Site(Protocol):
    """One cluster's store."""

    timeout_s: float
    horizon_s: float

    def membership(self, process: SimulatedProcess, build: Build) -> Membership: ...

    def after_step(self) -> None:
        """Pass hints on, and note what was agreed."""
        ...

    def agreed(self, revision: str) -> Agreed | None: ...


@dataclass
class LeaseSite:
    """A database with leases; `ahead_s` is by how much its clock is wrong."""

    world: World
    network: Network
    timeout_s: float = LEASE_S
    horizon_s: float = 60.0
    ahead_s: float = 0.0
    _sessions: list[tuple[Any, SimulatedProcess]] = field(default_factory=list)
    _trace: dict[int, Agreed] = field(default_factory=dict)
    _last: int = 0

    def __post_init__(self) -> None:
        self.memory = LeaseMemory(
            now=lambda: 5_000.0 + self.world.now + self.ahead_s, completes=self._completes
        )
        self.leader_tasks = LeaderTaskTable(self.memory, self.world)

    def membership(self, process: SimulatedProcess, build: Build) -> Membership:
        session = self.memory.session(process.clock)
        self._sessions.append((session, process))
        return build.lease(
            Wire(build.session(session), process, self.network, self.world),
            process.machine,
            clock=process.clock,
            runtime_id=process.name,
        )

    def after_step(self) -> None:
        for session, process in self._sessions:
            if session.hinted:
                session.wait(0)
                pass_on(self.world, process, 0.0)
        self._sessions = [pair for pair in self._sessions if pair[1].is_alive]
        if self.memory.seq != self._last:
            before = str(self._last or "")
            stays = {row.who.instance_id: str(row.entered) for row in self.memory.active}
            leaving = any(
                one.state is InstanceState.DEACTIVATING for one in self.memory.rows.values()
            )
            self._trace[self.memory.seq] = Agreed(stays, before, not leaving)
            self._last = self.memory.seq

    def agreed(self, revision: str) -> Agreed | None:
        return self._trace.get(int(revision))

    def _completes(self, who: Incarnation) -> bool:
        """Deal with a backlog; that can't always be done at once."""
        if self.world.now < self.horizon_s and self.world.random.random() < 0.3:
            return False
        self.leader_tasks.revoke(who)
        return True


class WatchedEventualStore(EventualStore):
    """Remembers every promotion, and checks that all members have said yes."""

    def __init__(self, world: World, delay_s: float) -> None:
        super().__init__(MachineClock(world, offset=3_000.0), delay_s=delay_s)
        self.promoted: dict[str, Agreed] = {}
        self._world = world
        self._yes: set[tuple[str, str]] = set()

    def write(self, process: str, key: Key, value: Any) -> None:
        super().write(process, key, value)
        if isinstance(value, Vote) and value.yes:
            self._yes.add((value.voting_id, value.instance_id))
        if key == ("established",):
            if missing := [
                one for one in value.members if (value.id, one.instance_id) not in self._yes
            ]:
                self._world.fail(f"{value.id} is promoted without the votes of {missing}")
            stays = {one.instance_id: one.leader_election_id for one in value.members}
            self.promoted[value.id] = Agreed(stays, value.replaces)


@dataclass
class VotingSite:
    """A store with votings; with `delay_s` 0 all see the same, as in one Postgres."""

    world: World
    network: Network
    delay_s: float = 0.0
    timeout_s: float = VOTING_TIMEOUT_S
    horizon_s: float = 110.0
    processes: list[SimulatedProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = WatchedEventualStore(self.world, self.delay_s)

    def membership(self, process: SimulatedProcess, build: Build) -> Membership:
        self.processes.append(process)
        session = self.store.session(process.name)
        return build.voting(
            Wire(build.session(session), process, self.network, self.world),
            process.machine,
            clock=process.clock,
            runtime_id=f"{self.world.random.getrandbits(32):08x}-{process.name}",
        )

    def after_step(self) -> None:
        for process in self.processes:
            bell = self.store.bell(process.name)
            if bell.is_set():
                bell.clear()
                pass_on(self.world, process, self.delay_s)
        self.processes = [one for one in self.processes if one.is_alive]

    def agreed(self, revision: str) -> Agreed | None:
        return self.store.promoted.get(revision)


def pass_on(world: World, process: SimulatedProcess, delay_s: float) -> None:
    """Hints are a little late, and one of eight is lost."""
    if world.random.random() > 0.125:
        world.after(delay_s + world.random.random() * 0.05, process.hint)
