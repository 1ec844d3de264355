"""A task of the pipeline as its own process: how long it took, and what it needed at most."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """Seconds of wall time and of all its processes' CPU, and the most MiB that a driver had."""

    wall_s: float
    cpu_s: float
    python_mib: float
    jvm_mib: float
    output: str


def run_task(environment: Mapping[str, str], *arguments: str) -> Run:
    """Run `packhorse-pipeline` to its end. Raises `SystemExit` with what it said when it fails."""
    command = [sys.executable, "-m", "packhorse_services.pipeline", *arguments]
    return run(command, {**os.environ, **environment})


def run(command: Sequence[str], environment: Mapping[str, str]) -> Run:
    """Run a program and its children to their end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    most: dict[str, float] = {}
    used: dict[int, float] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, most, used, ended))
    watcher.start()
    said, complaints = process.communicate()
    wall = time.perf_counter() - began
    ended.set()
    watcher.join()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{complaints}")
    cpu = sum(used.values())
    return Run(wall, cpu, most.get("python", 0.0), most.get("java", 0.0), said)


def _watch(
    pid: int, most: dict[str, float], used: dict[int, float], ended: threading.Event
) -> None:
    """Note the most that the program and its JVM had, and what each process of it has used."""
    while not ended.wait(_LOOK_S):
        for each in _family(pid):
            used[each] = max(used.get(each, 0.0), _cpu_s(each))
        for name, each in _drivers(pid):
            resident = _resident_mib(each)
            most[name] = max(most.get(name, 0.0), resident)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        found = [int(child) for one in children for child in one.read_text().split()]
    except OSError:
        return
    for child in found:
        yield from _family(child)


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _drivers(pid: int) -> list[tuple[str, int]]:
    found = [("python", pid)]
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in map(int, children):
        try:
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                found.append(("java", child))
        except OSError:
            continue
    return found


def _resident_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1024**2
    except (OSError, IndexError):
        return 0.0
