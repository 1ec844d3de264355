"""`packhorse`, and `python -m packhorse_services.cli`."""

import gc
import sys


def main() -> None:
    """Run the command line as a program."""
    gc.disable()  # what is imported stays: to look for garbage in it takes a tenth of the start
    from packhorse_services.cli.app import run

    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
