"""Where words go: data to stdout, talk to stderr."""

import sys

from rich.console import Console

data = Console(soft_wrap=True, highlight=False)
talk = Console(stderr=True, highlight=False)


def line(text: str) -> None:
    """Write `text` to stdout as it is, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write an error to stderr: the first line stands out, markup in it means nothing."""
    first, _, rest = text.partition("\n")
    talk.print("error: ", style="bold red", end="")
    talk.print(first, markup=False, soft_wrap=True)
    if rest:
        talk.print(rest, markup=False, soft_wrap=True)
