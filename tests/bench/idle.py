"""What `packhorse up` takes while nothing happens, program by program.

    python -m tests.bench.idle [SUBSCRIBERS] [SECONDS]

Starts the stack as a user does, twice: a folder's first start makes the databases, the second one
is measured until all is ready. Then it waits until the pools have given back what the start needed.
Prints a JSON line for each program, one for PostgreSQL, and those of all: threads, connections,
proportional set size in MB, and CPU in percent of a core. The connections of each program are
listed by database and application_name.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.bench.reporting import emit
from tests.harness import footprint
from tests.harness.command_line import Up, data_folder
from tests.harness.imported import COMMAND_LINE

_SETTLED_S = 120.0
"""Longer than any pool of a program keeps what nobody uses."""


def main() -> None:
    subscribers = sys.argv[1] if len(sys.argv) > 1 else "3"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    with data_folder() as folder:
        with running(folder, subscribers):
            pass
        began = time.perf_counter()
        with running(folder, subscribers) as stack:
            emit("ready", time.perf_counter() - began, "s", cpu_s=spent_by(stack))
            time.sleep(_SETTLED_S)
            measure(stack, seconds)


@contextmanager
def running(folder: Path, subscribers: str) -> Iterator[Up]:
    stack = Up(folder, "--subscribers", subscribers, module=COMMAND_LINE)
    stack.start()
    try:
        stack.ready()
        yield stack
    finally:
        stack.stop()


def spent_by(stack: Up) -> float:
    """Return the CPU seconds of all processes so far, PostgreSQL's included."""
    pids = stack.pids()
    postgres = pids.pop("postgres")
    return footprint.server_s(postgres) + footprint.processor_s(stack.pid, *pids.values())


def measure(stack: Up, seconds: float) -> None:
    server = EmbeddedPostgres(DataDirectory(stack.data).postgres)
    server.attach()
    pids = {"up": stack.pid, **stack.pids()}
    postgres = pids.pop("postgres")
    held = footprint.connections(server, pids)
    spent = {name: share(seconds_of) for name, seconds_of in timed(pids, postgres, seconds).items()}
    sizes = {name: footprint.memory_mb(pid) for name, pid in pids.items()}
    sizes["postgres"] = footprint.memory_mb(postgres, *footprint.children(postgres))
    for name, pid in pids.items():
        mine = [one for one in held if one.program == name]
        applications = Counter(f"{one.database}: {one.application}" for one in mine)
        emit(
            f"cpu_{name}",
            spent[name],
            "% of a core",
            threads=footprint.threads(pid),
            connections=len(mine),
            pss_mb=sizes[name],
            sessions=dict(sorted(applications.items())),
        )
    emit("cpu_postgres", spent["postgres"], "% of a core", pss_mb=sizes["postgres"])
    emit(
        "cpu",
        sum(spent.values()),
        "% of a core",
        without_postgres=sum(spent.values()) - spent["postgres"],
    )
    emit("memory", sum(sizes.values()), "MB, proportional set size, with Postgres")
    emit(
        "most_threads", max(footprint.threads(pid) for pid in pids.values()), "threads in a program"
    )
    emit("connections", len(held), "connections to Postgres")


def timed(pids: Mapping[str, int], postgres: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Return the processor time of each in a while, and how long that was."""
    began, before = time.perf_counter(), processor_times(pids, postgres)
    time.sleep(seconds)
    after, took = processor_times(pids, postgres), time.perf_counter() - began
    return {name: (after[name] - before[name], took) for name in after}


def processor_times(pids: Mapping[str, int], postgres: int) -> dict[str, float]:
    times = {name: footprint.processor_s(pid) for name, pid in pids.items()}
    return times | {"postgres": footprint.server_s(postgres)}


def share(spent: tuple[float, float]) -> float:
    return 100 * spent[0] / spent[1]


if __name__ == "__main__":
    main()
