"""Where words go: data to stdout, talk to stderr."""

import sys

from rich.console import Console

_UNBOUNDED = 10_000

data = Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED)
talk = Console(stderr=True, highlight=False)


def line(text: str) -> None:
    """Write `text` to stdout as it is, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write an error to stderr: the first line stands out, markup in it means nothing."""
    talk.print("error: ", style="bold red", end="")
    tell(text)


def tell(text: str) -> None:
    """Write a sentence to stderr; markup in it means nothing."""
    talk.print(text, markup=False, soft_wrap=True)
