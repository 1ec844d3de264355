"""What goes wrong during a run: kills, pauses past the lease, restarts of the servers."""

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.processes import Program


@dataclass
class Faults:
    """A seeded sequence of faults; each is healed before the next begins, or by `heal`."""

    seed: int
    publishers: list[Program]
    subscribers: list[Program]
    postgres: EmbeddedPostgres
    kill_broker: Callable[[], None] | None = None
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._paused: list[Program] = []
        self._menu = [self.kill_subscriber, self.kill_publisher, self.pause, self.kill_postgres]
        if self.kill_broker is not None:
            self._menu.append(self._kill_broker)
        self._turn = 0

    def next(self) -> None:
        """Do the next fault; every kind comes once before any comes again."""
        self._resume()
        if self._turn % len(self._menu) == 0:
            self._chance.shuffle(self._menu)
        fault = self._menu[self._turn % len(self._menu)]
        self._turn += 1
        fault()

    @property
    def all_kinds_happened(self) -> bool:
        """Whether each kind of fault came at least once."""
        return self._turn >= len(self._menu)

    def heal(self) -> None:
        """End all faults; the programs may still be starting."""
        self._resume()

    def kill_subscriber(self) -> None:
        """End a subscriber in whatever it does, and start it again."""
        self._kill(self._chance.choice(self.subscribers))

    def kill_publisher(self) -> None:
        """End a publisher in whatever it does, and start it again."""
        self._kill(self._chance.choice(self.publishers))

    def pause(self) -> None:
        """Stop a subscriber or publisher until the next fault, which may be past its lease."""
        program = self._chance.choice([*self.subscribers, *self.publishers])
        program.pause()
        self._paused.append(program)
        self.done.append(f"pause {program.name}")

    def kill_postgres(self) -> None:
        """End the server's postmaster with SIGKILL, and start it on the same data and port."""
        os.kill(self.postgres.pid(), signal.SIGKILL)
        self.postgres.start()
        self.done.append("kill postgres")

    def _kill_broker(self) -> None:
        assert self.kill_broker is not None
        self.kill_broker()
        self.done.append("kill kafka")

    def _kill(self, program: Program) -> None:
        program.kill()
        program.start()
        self.done.append(f"kill {program.name}")

    def _resume(self) -> None:
        while self._paused:
            self._paused.pop().resume()
