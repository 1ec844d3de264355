"""What goes wrong in a simulation, drawn by its seed."""

import os
from collections.abc import Callable

from tests.harness.topology.simulation import Simulation
from tests.harness.topology.sites import Build, LeaseSite, VotingSite
from tests.harness.topology.world import SimulationFailed

SEED_VARIABLE = "TEST_TOPOLOGY_SEED"
"""Set to a number, the simulator's suites run that seed alone."""


def seeds(first: int, count: int) -> range:
    """Return the seeds from `first` on, or the one that the environment names."""
    alone = os.environ.get(SEED_VARIABLE)
    return range(first, first + count) if alone is None else range(int(alone), int(alone) + 1)


def simulate(store: str, seed: int, build: Build | None = None) -> Simulation:
    """Run one seed to its end; whatever it breaks raises `SimulationFailed`."""
    simulation = Simulation(store, seed, build)
    Faults(simulation).schedule()
    try:
        simulation.run_for(simulation.site.horizon_s)
        _repair(simulation)
        simulation.converge()
    except SimulationFailed as failed:
        alone = f"{SEED_VARIABLE}={seed} runs this seed alone, with the store {store}"
        raise SimulationFailed(f"{failed}; {alone}") from failed
    except Exception as error:
        raise SimulationFailed(
            f"seed {seed}, at {simulation.world.now:.3f} s: {error!r}"
        ) from error
    return simulation


def _repair(simulation: Simulation) -> None:
    """One process on each machine, most machines up."""
    chance = simulation.world.random
    for machine in sorted(simulation.clocks):
        running = simulation.at(machine)
        chance.shuffle(running)
        for duplicate in running[1:]:
            duplicate.kill()
        if not running and (chance.random() < 0.75 or not simulation.live):
            simulation.start(machine)


class Faults:
    """Two to six machines, and four to twelve faults that may overlap."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.chance = simulation, simulation.world.random
        names = [f"i{number}" for number in range(9)]
        self.machines = self.chance.sample(names, self.chance.randint(2, 6))
        self.kinds: list[Callable[[str, float], None]] = [
            self._crash, self._end, self._pause, self._pause, self._cut, self._deafen,
            self._slow, self._outage, self._jump, self._clone, self._swizzle, self._announce,
            self._remote, self._late_listener,
        ]  # fmt: skip
        if simulation.store == "slow voting":
            self.kinds += [self._one_way, self._one_way]
        if simulation.store == "jumping lease":
            self.kinds += [self._database_jump, self._database_jump]

    def schedule(self) -> None:
        """Put all starts and faults on the agenda."""
        horizon = self.simulation.site.horizon_s
        for machine in self.machines:
            begins = self.chance.choice((0.0, self.chance.uniform(0, horizon / 2)))
            self._at(begins, self._boot(machine))
        for _ in range(self.chance.randint(4, 12)):
            fault, machine = self.chance.choice(self.kinds), self.chance.choice(self.machines)
            self._at(self.chance.uniform(1, horizon), self._fault(fault, machine))

    def _fault(self, fault: Callable[[str, float], None], machine: str) -> Callable[[], None]:
        lasts = self.chance.uniform(0.2, 2.5) * self.simulation.site.timeout_s
        return lambda: fault(machine, lasts)

    def _at(self, when: float, act: Callable[[], None]) -> None:
        if when < self.simulation.site.horizon_s:  # then all is repaired
            self.simulation.world.at(when, act)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(self.simulation.world.now + seconds, act)

    def _boot(self, machine: str) -> Callable[[], None]:
        return lambda: (
            None if self.simulation.at(machine) else _ignore(self.simulation.start(machine))
        )

    def _crash(self, machine: str, lasts: float) -> None:
        for process in self.simulation.at(machine):
            process.kill()
        self._later(self.chance.choice((0.0, lasts)), self._boot(machine))

    def _end(self, machine: str, lasts: float) -> None:
        for process in self.simulation.at(machine):
            process.stop()
        self._later(lasts, self._boot(machine))

    def _pause(self, machine: str, lasts: float) -> None:
        for process in self.simulation.at(machine):
            process.pause()
            self._later(lasts, process.resume)

    def _condition(self, machine: str, lasts: float, **changes: object) -> None:
        self.simulation.network.change(machine, **changes)
        self._later(lasts, lambda: self.simulation.network.clear(machine))

    def _cut(self, machine: str, lasts: float) -> None:
        self._condition(machine, lasts, cut=True)

    def _deafen(self, machine: str, lasts: float) -> None:
        self._condition(machine, lasts, deaf=True)

    def _slow(self, machine: str, lasts: float) -> None:
        way = self.chance.choice(("request_s", "answer_s"))
        self._condition(machine, lasts, **{way: self.chance.choice((0.5, 2.5, 8.0))})

    def _outage(self, _machine: str, lasts: float) -> None:
        for machine in self.machines:
            self._condition(machine, lasts, cut=True)

    def _jump(self, machine: str, _lasts: float) -> None:
        if machine in self.simulation.clocks:
            self.simulation.clocks[machine].skew += self.chance.choice((-60.0, 60.0))

    def _database_jump(self, _machine: str, _lasts: float) -> None:
        if isinstance(self.simulation.site, LeaseSite):
            self.simulation.site.ahead_s += self.chance.choice((-60.0, -9.0, 9.0, 60.0))

    def _clone(self, machine: str, lasts: float) -> None:
        before = self.simulation.at(machine)
        if before:
            clone = self.simulation.start(machine)
            self._later(lasts, self.chance.choice([*before, clone]).kill)

    def _swizzle(self, _machine: str, lasts: float) -> None:
        """Cut some off, one after the other, and let them back in another order."""
        some = [one for one in self.machines if self.chance.random() < 0.6]
        for order, cut in ((some, True), (self.chance.sample(some, len(some)), False)):
            for place, machine in enumerate(order):
                when = (0.0 if cut else lasts / 2) + lasts / 2 * place / len(some)
                self._later(when, self._switch(machine, cut))

    def _switch(self, machine: str, cut: bool) -> Callable[[], None]:
        return lambda: self.simulation.network.change(machine, cut=cut)

    def _announce(self, machine: str, lasts: float) -> None:
        for process in self.simulation.at(machine):
            process.properties.set("load", f"{lasts:.3f}")
            process.hint()

    def _remote(self, _machine: str, _lasts: float) -> None:
        remotes = self.simulation.remotes
        remotes.version += 1
        remotes.instances = max(remotes.instances, self.chance.randint(1, 3))

    def _late_listener(self, machine: str, _lasts: float) -> None:
        for process in self.simulation.at(machine):
            process.listen(0.01)

    def _one_way(self, machine: str, lasts: float) -> None:
        """What one writes arrives late at another; not the other way round."""
        writers, readers = self.simulation.at(machine), self.simulation.live
        if isinstance(self.simulation.site, VotingSite) and writers and readers:
            store, reader = self.simulation.site.store, self.chance.choice(readers)
            store.delay(writers[0].name, reader.name, lasts)


def _ignore(_value: object) -> None:
    return None
