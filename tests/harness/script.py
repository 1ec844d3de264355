"""A user's script, or text behind `-c`, run as `python3` would, in a fork that has imported ours.

Begun by `tests.harness.imported` with the arguments of `python3`.
"""

import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Be the script."""
    given = sys.argv[1:]
    if given[:1] == ["-c"]:
        sys.argv, sys.path[0] = ["-c", *given[2:]], ""
        exec(compile(given[1], "<string>", "exec"), {"__name__": "__main__"})
    elif given and not given[0].startswith("-"):
        sys.argv, sys.path[0] = given, str(Path(given[0]).resolve().parent)
        runpy.run_path(given[0], run_name="__main__")
    else:
        os.execv(sys.executable, [sys.executable, *given])


if __name__ == "__main__":
    main()
