"""Arguments and options that several commands take, each declared once."""

from typing import Annotated

import typer

from packhorse_services.cli.client import completion
from packhorse_services.cli.client.views import Format

_LONGEST_S = 1e9


def _countable(seconds: float | None) -> float | None:
    """Refuse what no timer takes before anything is done: nan, inf, and thousands of years."""
    if seconds is not None and not seconds <= _LONGEST_S:
        raise typer.BadParameter(f"{seconds:g} is more than {_LONGEST_S:g} seconds, or no number")
    return seconds


# Who is meant.
SubscriberName = Annotated[
    str, typer.Argument(help="The subscriber.", autocompletion=completion.subscribers)
]
ReleaseName = Annotated[
    str, typer.Argument(help="Its name or id.", autocompletion=completion.releases)
]

# How something is shown.
Output = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again.")]
Cursor = Annotated[
    str | None, typer.Option(help="Go on where an earlier page ended; stderr named its cursor.")
]
OldestFirst = Annotated[int, typer.Option(min=1, max=1000, help="How many, oldest first.")]
NewestFirst = Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")]

# How something is followed.
After = Annotated[
    str | None, typer.Option(metavar="ID", help="Go on behind the event with this id.")
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0, callback=_countable, help="End after that.", show_default="Ctrl-C ends it"),
]

# How something is asked for, and how long its end is waited for.
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Key = Annotated[
    str | None, typer.Option(help="Idempotency key: repeat a request with the same one.")
]
WaitForAll = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Until every live subscriber is done with it; exit code 1 when one removed it or gave "
        "it up, 124 when that takes too long.",
    ),
]
Timeout = Annotated[float, typer.Option(min=0, callback=_countable, help="Seconds to wait.")]
