"""Runs a program that ends when its parent does, even when the parent is killed.

Run as a script, with nothing but the standard library, so that it costs a few milliseconds:
`leash.py PARENT_PID SIGNAL COMMAND…`. The kernel keeps the leash on Linux; elsewhere the command
runs without one.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def on_leash(number: int = _SIGKILL) -> tuple[str, ...]:
    """Return what stands before a command that is to get a signal when the caller's thread ends."""
    return sys.executable, "-ES", __file__, str(os.getpid()), str(int(number))


def main() -> None:
    """Put on the leash, then become the command."""
    parent, signal_number, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))
        if os.getppid() != int(parent):
            sys.exit(f"parent {parent} ended before {command[0]} began")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
