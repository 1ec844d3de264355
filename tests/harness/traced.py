"""A process of ours that strace kills at its n-th send to a server."""

import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.processes import Process
from tests.harness.waiting import eventually


def run_until_send(process: Process, number: int, *options: str) -> bool:
    """Run it to its end, or until its n-th send; return whether it was killed there.

    `-f` among the options counts the sends of each of its threads.
    """
    process.start(stopped=True)
    eventually(lambda: _has(process.pid, "State:\tT"), what="it waits for its tracer")
    inject = f"inject=sendto:signal=SIGKILL:when={number}"
    with _traced(process.pid, (*options, "-e", "trace=sendto", "-e", inject)):
        eventually(lambda: not _has(process.pid, "TracerPid:\t0"), what="it is traced")
        process.resume()
        code = process.wait(600)
    assert code in (0, -signal.SIGKILL), process.said()
    return code != 0


@contextmanager
def _traced(pid: int, options: Sequence[str]) -> Iterator[None]:
    """Let strace stop a process at what it does; it ends with the block at the latest."""
    assert shutil.which("strace"), "the crash points need strace; .ci/run installs it"
    command = ("strace", "-qqq", "-o", "/dev/null", *options, "-p", str(pid))
    with subprocess.Popen(command) as strace:
        try:
            yield
        finally:
            strace.terminate()


def _has(pid: int, line: str) -> bool:
    """Return whether the process' status has a line that begins like this."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(one.startswith(line) for one in lines)
