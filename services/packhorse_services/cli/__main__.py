"""`packhorse`, and `python -m packhorse_services.cli`."""

import sys

from packhorse_services.cli.app import run


def main() -> None:
    """Run the command line as a program."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
