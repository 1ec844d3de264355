"""Simulated time: one thread, one order of steps for each seed, processes that stop anywhere.

A process is a greenlet. It gives way whenever it asks its store, so that it may be killed or
paused between any two of its steps with the store, and everything else goes on meanwhile.
"""

import heapq
import itertools
import random
import threading
from collections.abc import Callable


class SimulationFailed(AssertionError):
    """A promise was broken, at the given time of the simulation."""


class World:
    """The scheduler: what is to happen when, by true time in seconds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = random.Random(seed)
        self.failure: SimulationFailed | None = None
        self.after_step: Callable[[], None] = lambda: None
        self._numbers = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (max(when, self.now), next(self._numbers), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(self.now + seconds, act)

    def run(self, until: float) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, act = heapq.heappop(self._agenda)
            act()
            self.after_step()
            if self.failure is not None:
                raise self.failure
        self.now = until

    def fail(self, what: str) -> None:
        """End the run, also where the code under test survives every exception."""
        failure = SimulationFailed(f"seed {self.seed}, at {self.now:.3f} s: {what}")
        self.failure = self.failure or failure
        raise failure


class MachineClock:
    """`Clock` of one machine: nobody's monotonic clock begins alike, and wall clocks jump."""

    def __init__(self, world: World, offset: float = 0.0, skew: float = 0.0) -> None:
        self.world, self.offset, self.skew = world, offset, skew

    def monotonic(self) -> float:
        return self.world.now + self.offset

    def wall_ms(self) -> int:
        return int((self.world.now + self.skew) * 1000) + 1_700_000_000_000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.is_set()  # nobody waits in a simulation: the scheduler does
