"""`packhorse topics retention` and `discard`: what the journal keeps, by the cleanup service."""

import re
from typing import Annotated, Any

import typer

from packhorse.client.exchange import Request, requested
from packhorse.wire.topics import Topics
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.options import Output, Yes
from packhorse_services.cli.client.views import Format, View

_UNITS = {"d": 86_400, "h": 3_600, "m": 60}
_FOREVER = "forever"

Topic = Annotated[
    str | None, typer.Argument(help=", ".join(Topics().by_part()), show_default="all are shown")
]
Period = Annotated[
    str | None,
    typer.Argument(help=f"Such as 14d, 36h, 90m or {_FOREVER}.", show_default="it is shown"),
]
LeaveBehind = Annotated[
    list[str] | None,
    typer.Option("--leave-behind", help="A subscriber that may lose packages by it; repeatable."),
]
TOPICS = View(
    rows="topics",
    name="name",
    columns={"TOPIC": "topic", "NAME": "name", "RETENTION": "kept", "OFFSETS": "offsets"},
    wide={"RETENTION_S": "retention_s"},
)


def retention(
    context: typer.Context,
    topic: Topic = None,
    period: Period = None,
    leave_behind: LeaveBehind = None,
    form: Output = Format.TABLE,
) -> None:
    """Show how long topics keep their records, or let one keep them for so long from now on.

    A longer retention of packages comes after that of statuses, commands and events; a shorter one
    before.
    """
    if topic is not None and topic not in Topics().by_part():
        raise CommandFailed(f"a topic is one of {', '.join(Topics().by_part())}", Exit.USAGE)
    with context.ensure_object(Connection).cleanup() as cleanup:
        if topic is not None and period is not None:
            body = {"retention_s": seconds(period), "leave_behind": leave_behind or []}
            path = f"/journal/topics/{topic}/retention"
            cleanup.run(requested(Request("PUT", path, "cleanup", body=body)))
        found = cleanup.get("/journal/topics", "cleanup")
    shown = [one for one in found if topic in (None, one["topic"])]
    rows = shown if form is Format.JSON else [_row(one) for one in shown]
    TOPICS.show({"topics": rows}, form)


def discard(
    context: typer.Context,
    up_to: Annotated[int, typer.Option(min=0, help="The last offset that goes.")],
    leave_behind: LeaveBehind = None,
    dry_run: Annotated[
        bool, typer.Option(help="Only say what would go, and who loses it.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove the packages up to an offset from the journal, for everybody and for good.

    Refused while subscribers have not imported them, unless each of these is named.
    """
    body = {"up_to": up_to, "leave_behind": leave_behind or []}
    with context.ensure_object(Connection).cleanup() as cleanup:

        def asked(*, dry_run: bool) -> Any:
            sent = Request("POST", "/journal/discard", "cleanup", body={**body, "dry_run": dry_run})
            return cleanup.run(requested(sent))

        would = asked(dry_run=True)
        _report(would)
        if dry_run:
            return
        if not yes:
            output.require_yes(f"Discard {would['offsets']} offsets?", "nothing was discarded")
        output.line(str(asked(dry_run=False)["oldest_offset"]))


def seconds(period: str) -> int | None:
    """Return a period's seconds, None for ever. Raises `CommandFailed` with `Exit.USAGE`."""
    if period == _FOREVER:
        return None
    found = re.fullmatch(r"([0-9]{1,9})([dhm])", period)
    if found is None:
        raise CommandFailed(f"a period is such as 14d, 36h, 90m or {_FOREVER}", Exit.USAGE)
    return int(found[1]) * _UNITS[found[2]]


def _row(topic: Any) -> dict[str, Any]:
    held = [f"{one['oldest_offset']}..{one['next_offset'] - 1}" for one in topic["partitions"]]
    return {**topic, "kept": period_of(topic["retention_s"]), "offsets": " ".join(held)}


def period_of(found: int | None) -> str:
    """Return seconds as a period that `seconds` takes, or with their unit where none fits."""
    if found is None:
        return _FOREVER
    fitting = ((found // each, unit) for unit, each in _UNITS.items() if found % each == 0)
    count, unit = next(fitting, (found, "s"))
    return f"{count}{unit}"


def _report(would: Any) -> None:
    output.report(
        f"{would['offsets']} offsets go; the log then begins at {would['oldest_offset']} and goes "
        f"on at {would['next_offset']}"
    )
    for one in would["left_behind"]:
        output.report(
            f"{one['subscriber']} has not imported all of it: of agent {one['publisher_agent']} it "
            f"is done up to {one['offset']}, by its announcement of {one['announced_at']}"
        )
