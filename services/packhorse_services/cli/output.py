"""Where words go: data to stdout, talk to stderr."""

import sys

from rich.console import Console

data = Console(soft_wrap=True, highlight=False)
talk = Console(stderr=True, highlight=False)


def line(text: str) -> None:
    """Write `text` to stdout as it is, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
