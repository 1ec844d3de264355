"""A program that ends itself with SIGKILL, its JVM with it, at the nth call of a function.

`python -m tests.harness.killed_program MODULE:FUNCTION@before2 PROGRAM ARGUMENTS…`; after instead
of before lets the call end first. Start it in a session of its own (`processes.Process`).
"""

import importlib
import os
import re
import runpy
import signal
import sys
from typing import Any

_POINT = re.compile(r"(?P<module>[\w.]+):(?P<names>[\w.]+)@(?P<side>before|after)(?P<count>\d+)")


def deadly(point: str) -> None:
    """Put a function in the place of the one that `point` names, which ends all of us there."""
    found = _POINT.fullmatch(point)
    assert found, point
    *owners, name = found["names"].split(".")
    owner: Any = importlib.import_module(found["module"])
    for one in owners:
        owner = getattr(owner, one)
    whole = getattr(owner, name)
    left = int(found["count"])

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if not left and found["side"] == "before":
            os.killpg(0, signal.SIGKILL)
        result = whole(*given, **named)
        if not left:
            os.killpg(0, signal.SIGKILL)
        return result

    setattr(owner, name, counted)


if __name__ == "__main__":
    _, wanted, program, *arguments = sys.argv
    deadly(wanted)
    sys.argv = [program, *arguments]
    runpy.run_module(program, run_name="__main__", alter_sys=True)
