"""What a running stack takes while nothing happens: threads, connections, memory, processor time.

Counted from outside, by the kernel and by the server, so that no program has to be believed.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from packhorse_services.cli.stack.embedded import EmbeddedPostgres

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Held:
    """A connection to the server: whose it is, its database, and its application's name."""

    program: str
    database: str
    application: str


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def memory_mb(*pids: int) -> float:
    """Return the proportional set size of processes; one that has just ended has none."""
    return sum(_pss_kb(pid) for pid in pids) / 1024


def processor_s(*pids: int) -> float:
    """Return seconds of user and system time, with that of children that have ended."""
    return sum(_ticks(pid) for pid in pids) / _TICKS


def server_s(postmaster: int) -> float:
    """Return those seconds of a PostgreSQL server, its sessions that have ended included."""
    return processor_s(postmaster, *children(postmaster))


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def connections(server: EmbeddedPostgres, pids: Mapping[str, int]) -> list[Held]:
    """Return who is connected to the server now, but for this question itself."""
    ports = {port: name for name, pid in pids.items() for port in _ports(pid)}
    with psycopg.connect(server.url()) as connection:
        rows = connection.execute(
            "SELECT client_port, datname, application_name FROM pg_stat_activity "
            "WHERE client_port > 0 AND pid <> pg_backend_pid()"
        ).fetchall()
    return [Held(ports.get(port, "?"), database, name) for port, database, name in rows]


def _ports(pid: int) -> set[int]:
    sockets: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            sockets.add(str(descriptor.readlink()))
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return {
        int(fields[1].rpartition(":")[2], 16)
        for fields in map(str.split, lines)
        if f"socket:[{fields[9]}]" in sockets
    }


def _pss_kb(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _ticks(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return sum(map(int, fields[11:15]))
    return 0
