"""`packhorse`, and `python -m packhorse_services.cli`."""

import gc
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line as a program."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who runs this
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
    gc.disable()  # what is imported stays: to look for garbage in it takes a tenth of the start
    from packhorse_services.cli.app import run

    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
