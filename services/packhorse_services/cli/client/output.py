"""Where words go: data to stdout, talk to stderr."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from packhorse.runtime.plain_text import plain
from packhorse_services.cli.client.failures import CommandFailed

_WATCH_S = 2.0

data = Console(highlight=False)
talk = Console(stderr=True, highlight=False)


def line(text: str) -> None:
    """Write `text` to stdout at once, without what would steer a terminal."""
    sys.stdout.write(plain(text) + "\n")
    sys.stdout.flush()


def give_up() -> None:
    """Drop what stdout does not take, which would be a second error at the end."""
    with suppress(OSError):
        try:
            sys.stdout.flush()
        except OSError:
            sys.stdout.close()


def complain(text: str) -> None:
    """Write an error to stderr: the first line stands out, markup in it means nothing."""
    talk.print("error: ", style="bold red", end="")
    report(text)


def report(text: str) -> None:
    """Write a sentence to stderr; markup in it means nothing."""
    talk.print(plain(text), markup=False, soft_wrap=True)


def require_yes(question: str, otherwise: str) -> None:
    """Ask on stderr. Raises `CommandFailed`, which says `otherwise`, for all but a yes on stdin."""
    talk.print(f"{plain(question)} [y/N]: ", markup=False, soft_wrap=True, end="")
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if answer.strip().lower() in ("y", "yes"):
        return
    if not answer:  # it is closed, and no one has ended the line
        report("")
        otherwise += ", for nobody answers; --yes asks nothing"
    raise CommandFailed(otherwise)


def bars() -> Progress:
    """Return bars on stderr, each with a name, an amount and times; disabled off a terminal."""
    return Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=talk,
        disable=not talk.is_terminal,
    )


def again(show: Callable[[], object], *, watch: bool) -> None:
    """Show something once, or with `watch` every 2 s until Ctrl-C."""
    while True:
        if watch and data.is_terminal:
            data.clear()
        elif watch:
            report(f"# {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        show()
        if not watch:
            return
        time.sleep(_WATCH_S)
        if not data.is_terminal:
            line("")
