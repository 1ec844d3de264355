"""What `packhorse up` takes while nothing happens, program by program.

    python -m tests.bench.idle [SUBSCRIBERS] [SECONDS]

Starts the stack as a user does, waits until its pools have given back what the start needed, and
prints a JSON line for each program, one for PostgreSQL and one for all: threads, connections,
proportional set size in MB, and processor time in percent of a core. The connections of each
program are listed by database and application_name.
"""

import sys
import time
from collections import Counter
from collections.abc import Mapping

import orjson

from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness import footprint
from tests.harness.command_line import Up, data_folder
from tests.harness.imported import COMMAND_LINE

_SETTLED_S = 120.0
"""Longer than any pool of a program keeps what nobody uses."""


def main() -> None:
    subscribers = sys.argv[1] if len(sys.argv) > 1 else "3"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    with data_folder() as folder:
        stack = Up(folder, "--subscribers", subscribers, module=COMMAND_LINE)
        stack.start()
        try:
            stack.ready()
            time.sleep(_SETTLED_S)
            measure(stack, seconds)
        finally:
            stack.stop()


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
            program=name,
            threads=footprint.threads(pid),
            connections=len(mine),
            pss_mb=sizes[name],
            cpu_percent=spent[name],
            sessions=dict(sorted(applications.items())),
        )
    emit(program="postgres", pss_mb=sizes["postgres"], cpu_percent=spent["postgres"])
    emit(
        program="all",
        most_threads=max(footprint.threads(pid) for pid in pids.values()),
        connections=len(held),
        pss_mb=sum(sizes.values()),
        cpu_percent=sum(spent.values()),
        cpu_percent_without_postgres=sum(spent.values()) - spent["postgres"],
    )


def timed(pids: Mapping[str, int], postgres: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Return the processor time of each in a while, and how long that was."""
    began, before = time.perf_counter(), processor_times(pids, postgres)
    time.sleep(seconds)
    after, took = processor_times(pids, postgres), time.perf_counter() - began
    return {name: (after[name] - before[name], took) for name in after}


def processor_times(pids: Mapping[str, int], postgres: int) -> dict[str, float]:
    times = {name: footprint.processor_s(pid) for name, pid in pids.items()}
    times["postgres"] = footprint.processor_s(postgres, *footprint.children(postgres))
    return times


def share(spent: tuple[float, float]) -> float:
    return 100 * spent[0] / spent[1]


def emit(**line: object) -> None:
    rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in line.items()}
    sys.stdout.write(orjson.dumps(rounded).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
