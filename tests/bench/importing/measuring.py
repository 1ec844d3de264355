"""What a way of importing took: wall time, and the CPU of its processes and of the servers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.footprint import processor_s, server_s

_LOOK_S = 0.02
_TIMEOUT_S = 1_800.0


@dataclass(frozen=True)
class Cost:
    """Of one run; microseconds are those of CPU a package."""

    rate: float
    program_us: float
    postgres_us: float
    broker_us: float

    @property
    def cpu_us(self) -> float:
        """Of the programs and the database; the broker serves all of them alike."""
        return self.program_us + self.postgres_us


class Watch:
    """Measures from `begin` to `end`, each of which looks at every process at once."""

    def __init__(self, server: EmbeddedPostgres, broker: int, own: Sequence[int]) -> None:
        self._server, self._broker, self._own = server, broker, own
        self._before = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        return (
            time.perf_counter(),
            processor_s(*self._own),
            server_s(self._server.pid()),
            processor_s(self._broker),
        )

    def cost(self, packages: int, foreign_s: float = 0.0) -> Cost:
        """What `packages` have cost since; `foreign_s` of Postgres' CPU was the watcher's own."""
        wall, own, postgres, broker = (
            late - early for early, late in zip(self._before, self._now(), strict=True)
        )
        micro = 1e6 / packages
        return Cost(packages / wall, own * micro, (postgres - foreign_s) * micro, broker * micro)


class Looker:
    """Looks, with a session of its own, whether a node is there; knows what that cost."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def __enter__(self) -> "Looker":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def cpu_s(self) -> float:
        """CPU seconds of the session's backend so far."""
        return processor_s(self._connection.info.backend_pid)

    def is_there(self, path: str) -> bool:
        """Look once."""
        query = "SELECT FROM content.node WHERE path = %b"
        return self._connection.execute(query, (path,)).fetchone() is not None

    def wait_for(self, path: str, lives: Callable[[], bool]) -> None:
        """Return once the node is there. Raises `SystemExit` when `lives` says it never will."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.is_there(path):
            if not lives() or time.monotonic() > deadline:
                raise SystemExit(f"{path} was not imported")
            time.sleep(_LOOK_S)
