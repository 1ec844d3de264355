"""A cluster in simulated time: its machines, its processes, and what is done to them."""

from collections.abc import Mapping, Sequence

from packhorse.topology.membership import (
    DuplicateInstance,
    Membership,
    Observation,
    StoreUnavailable,
)
from packhorse.topology.properties import LEADER_PREFIX
from packhorse.topology.view import ClusterView, InstanceDescription
from tests.harness.topology.checks import VERSION, Checks
from tests.harness.topology.leader_tasks import do_leader_tasks
from tests.harness.topology.process import SimulatedProcess
from tests.harness.topology.sites import Build, LeaseSite, Site, VotingSite
from tests.harness.topology.wire import Network
from tests.harness.topology.world import MachineClock, World

MIN_EVENT_DELAY_S = 3.0
NEVER_SPLIT = ("lease", "voting")
"""The others are "slow voting" and "jumping lease", whose database's clock is set now and then."""


class Watched:
    """A membership whose observations are checked."""

    def __init__(self, inner: Membership, process: SimulatedProcess, checks: Checks) -> None:
        self._inner, self._process, self._checks = inner, process, checks
        self.instance_id = inner.instance_id
        self.acknowledge, self.wait, self.wake = inner.acknowledge, inner.wait, inner.wake
        self.leave = inner.leave

    @property
    def interval_s(self) -> float:
        return self._inner.interval_s

    def beat(self, properties: Mapping[str, str]) -> Observation:
        try:
            seen = self._inner.beat(properties)
        except (StoreUnavailable, DuplicateInstance):
            raise
        except Exception as error:
            self._process.world.fail(f"{self._process.name} raised {error!r}")
            raise
        self._checks.observed(self._process, seen)
        return seen


class SharedRemotes:
    """Remote clusters that all processes read from one place."""

    def __init__(self) -> None:
        self.version, self.instances = 0, 0

    def close(self) -> None:
        pass

    def is_fresh(self) -> bool:
        return False

    def clusters(self) -> Sequence[ClusterView]:
        if not self.instances:
            return ()
        return (
            ClusterView(
                "far",
                tuple(
                    InstanceDescription(
                        f"far-{number}", "far", number == 0, False, {VERSION: str(self.version)}
                    )
                    for number in range(self.instances)
                ),
            ),
        )


class Simulation:
    """One run over one of the stores."""

    def __init__(self, store: str, seed: int, build: Build | None = None) -> None:
        self.world, self.network, self.build = World(seed), Network(), build or Build()
        self.site = _site(store, self.world, self.network)
        self.store, self.strict = store, store in NEVER_SPLIT
        self.checks = Checks(self.world, self.site.agreed, min_delay_s=MIN_EVENT_DELAY_S)
        self.remotes = SharedRemotes()
        self.processes: list[SimulatedProcess] = []
        self.clocks: dict[str, MachineClock] = {}
        self._runs = 0
        self.world.after_step = self._after_step

    def start(self, machine: str) -> SimulatedProcess:
        """Start a process; a second one on a machine has the same instance id."""
        self._runs += 1
        process = SimulatedProcess(
            self.world, f"{machine}#{self._runs}", machine, self._clock(machine)
        )
        self.processes.append(process)
        process.wiretap, process.overhear = self.checks.reported, self.checks.heard
        process.build_mailbox = self.build.mailbox
        process.properties.set("packhorse.role", "publisher")
        if self.prefers(machine):
            process.properties.set(LEADER_PREFIX, "0")
            self.checks.preferred.add(machine)
        process.listen(0.01)
        process.listen(self.world.random.choice((0.5, 12.0)))
        membership = Watched(self.site.membership(process, self.build), process, self.checks)
        process.begin(membership, self.build.flow(), self.remotes)
        if isinstance(self.site, LeaseSite) and self.world.seed % 2:
            checks = self.build.checks_tokens
            do_leader_tasks(
                self.site.leader_tasks, process, self.network, self.world, checks=checks
            )
        return process

    def prefers(self, machine: str) -> bool:
        """Whether a machine is to lead next: every second one, in every third run over leases."""
        is_lease = isinstance(self.site, LeaseSite)
        return is_lease and self.world.seed % 3 == 0 and machine[-1] in "13579"

    def at(self, machine: str) -> list[SimulatedProcess]:
        """Return the live processes of a machine."""
        return [one for one in self.live if one.machine == machine]

    @property
    def live(self) -> list[SimulatedProcess]:
        """The processes that have not ended, in the order of their start."""
        self.processes = [one for one in self.processes if one.is_alive]
        return self.processes

    def run_for(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def heal(self) -> None:
        """End all faults but the death of processes."""
        self.network.heal()
        if isinstance(self.site, VotingSite):
            self.site.store.heal()
        for process in self.live:
            process.resume()

    def converge(self) -> None:
        """Heal; two time-outs later all that live must agree, and so must what was heard."""
        self.heal()
        self.run_for(2 * self.site.timeout_s)
        self.checks.converged(self.live)
        self.checks.one_sequence()

    def leaders(self) -> set[str]:
        """Return who leads in a current view of anybody."""
        views = (one.participation.current_view() for one in self.live)
        return {view.local_cluster.leader.id for view in views if view is not None}

    def _clock(self, machine: str) -> MachineClock:
        if machine not in self.clocks:
            chance = self.world.random
            skew = chance.uniform(-60, 60)
            self.clocks[machine] = MachineClock(self.world, chance.uniform(0, 9_999), skew)
        return self.clocks[machine]

    def _after_step(self) -> None:
        self.site.after_step()
        if self.strict:
            self.checks.one_view(self.live)


def _site(store: str, world: World, network: Network) -> Site:
    if store in ("lease", "jumping lease"):
        return LeaseSite(world, network)
    return VotingSite(world, network, delay_s=0.5 if store == "slow voting" else 0.0)
