"""Flame graphs of a program under measurement, by py-spy from outside of it."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RATE = 100
"""Samples a second; more of them slow a program down that has many threads."""


@contextmanager
def flame_graph(pid: int, file: Path | None) -> Iterator[None]:
    """Write to `file` where a process holds the interpreter's lock meanwhile, thread by thread.

    An SVG, or text for flame graph tools where the name does not end so. Without a file it does
    nothing. The process is not stopped for a sample, so that a few of them are wrong.
    """
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    style = "flamegraph" if file.suffix == ".svg" else "raw"
    command = ["py-spy", "record", "--nonblocking", "--gil", "--threads", "--duration", "86400"]
    command += ["--rate", str(_RATE), "--format", style, "--output", str(file), "--pid", str(pid)]
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert recorder.stdout is not None
    assert recorder.stdout.readline(), "py-spy ended at once"  # it says that it samples
    try:
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=120)
