"""The two kinds of cluster that a simulation can have, and what each store says was agreed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from packhorse.clock import Clock
from packhorse.topology.events import EventFlow
from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.membership import Membership
from packhorse.topology.voting.member import VotingMember
from tests.harness.topology.checks import Agreed
from tests.harness.topology.lease_memory import LeaseMemory
from tests.harness.topology.process import SimulatedProcess
from tests.harness.topology.voting_memory import EventualStore, Key
from tests.harness.topology.wire import Network, Wire
from tests.harness.topology.world import MachineClock, World

LEASE_S, LEASE_INTERVAL_S = 10.0, 2.0
VOTING_TIMEOUT_S, VOTING_INTERVAL_S = 20.0, 15.0


@dataclass(frozen=True)
class Build:
    """The code under test; a test that checks the checks puts something broken here."""

    flow: Callable[[], EventFlow] = EventFlow
    lease: Callable[..., Membership] = LeaseMember
    voting: Callable[..., Membership] = VotingMember


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
        self.memory = LeaseMemory(now=lambda: 5_000.0 + self.world.now + self.ahead_s)

    def membership(self, process: SimulatedProcess, build: Build) -> Membership:
        session = self.memory.session(process.clock)
        self._sessions.append((session, process))
        return build.lease(
            Wire(session, process, self.network, self.world),
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
            stays = {row.who.instance_id: str(row.joined) for row in self.memory.active}
            self._trace[self.memory.seq] = Agreed(stays, before)
            self._last = self.memory.seq

    def agreed(self, revision: str) -> Agreed | None:
        return self._trace.get(int(revision))


class WatchedEventualStore(EventualStore):
    """Remembers every promotion."""

    def __init__(self, clock: Clock, delay_s: float) -> None:
        super().__init__(clock, delay_s=delay_s)
        self.promoted: dict[str, Agreed] = {}

    def write(self, process: str, key: Key, value: Any) -> None:
        super().write(process, key, value)
        if key == ("established",):
            stays = {one.instance_id: one.leader_election_id for one in value.members}
            self.promoted[value.id] = Agreed(stays, value.replaces)


@dataclass
class VotingSite:
    """A store with votings; with `delay_s` 0 all see the same, as in one Postgres."""

    world: World
    network: Network
    delay_s: float = 0.0
    timeout_s: float = VOTING_TIMEOUT_S
    horizon_s: float = 150.0
    processes: list[SimulatedProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = WatchedEventualStore(MachineClock(self.world, offset=3_000.0), self.delay_s)

    def membership(self, process: SimulatedProcess, build: Build) -> Membership:
        self.processes.append(process)
        session = self.store.session(process.name)
        return build.voting(
            Wire(session, process, self.network, self.world),
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
