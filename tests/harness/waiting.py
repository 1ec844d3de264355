"""Waiting for a condition, with a deadline: the only way that tests let time pass."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T], what: str = "", *, timeout: float = 120.0, interval: float = 0.05
) -> T:
    """Return the first true thing that `look` gives; fail with the last one after `timeout`.

    An `AssertionError` of `look` counts as not yet.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            seen: object = look()
        except AssertionError as error:
            seen = error
        else:
            if seen:
                return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or look}; last seen: {seen!r}")
        time.sleep(interval)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, its parent told of it or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pause(pid: int) -> None:
    """Stop every thread of a process with SIGSTOP, and return when none of them runs any more."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: _is_stopped(pid), interval=0.005, what=f"process {pid} stands still")


def _is_stopped(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = thread.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "TtZX":
            return False
    return True
