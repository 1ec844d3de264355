"""`packhorse events`: follows what happens, as `tail -f` does, over lost connections too."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from packhorse.client.blocking import Client
from packhorse.client.errors import ClientError, Refused
from packhorse.client.exchange import with_query
from packhorse.client.following import Following, StreamEvent
from packhorse.runtime.plain_text import one_line
from packhorse_services.cli.client import output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.options import After, Output, Seconds
from packhorse_services.cli.client.views import Format


class TimeIsUp(BaseException):
    """The seconds that the user gave have passed."""


def follow_events(
    context: typer.Context,
    *,
    types: Annotated[
        list[str] | None,
        typer.Option(
            help="Some of package, status, distributed, subscriber, with commas; may be repeated.",
            show_default="package,status,distributed",
        ),
    ] = None,
    subscriber: Annotated[
        str | None, typer.Option(help="Only what is about this one: no package.")
    ] = None,
    after: After = None,
    seconds: Seconds = None,
    form: Output = Format.TABLE,
) -> None:
    """Follow packages, what becomes of them, and the states of subscribers."""
    behind = event_id(after)
    wanted = ",".join(types) if types else None
    following = Following(with_query("/events", types=wanted, subscriber=subscriber), after=behind)
    connection = context.ensure_object(Connection)
    with connection.publisher() as publisher, suppress(TimeIsUp), ending_after(seconds):
        for event in follow(publisher, following):
            output.line(_SHOWN[form](event))


def event_id(after: str | None) -> str:
    """Return what `--after` names, "" for nothing. Raises `CommandFailed` when it is empty."""
    if after is not None and not after.strip():
        raise CommandFailed("--after is empty; name an event's id, or leave it out", Exit.USAGE)
    return after or ""


def follow(service: Client, following: Following) -> Iterator[StreamEvent]:
    """Yield events for ever, and report lost connections.

    Raises `ClientError` when the first connection fails, and when the service refuses for good.
    """
    following.waiting = _report_loss
    return service.follow(following)


def _report_loss(error: ClientError, wait_s: float) -> None:
    again = "" if isinstance(error, Refused) else f"; trying again in {wait_s:g} s"
    output.report(f"{error}{again}")


@contextmanager
def ending_after(seconds: float | None) -> Iterator[None]:
    """Raise `TimeIsUp` in the block after so many seconds, also while it waits for a byte."""
    if seconds is None:
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


Shown = Callable[[StreamEvent], str]


def forms(text: Shown, name: Shown) -> Mapping[Format, Shown]:
    """Return how each format shows an event, by how it looks as a line and as a name.

    An event of a later version, for which `text` fails, is shown as it is.
    """

    def line(event: StreamEvent) -> str:
        try:
            return one_line(text(event).rstrip())
        except (ValueError, KeyError, TypeError, AttributeError):
            data = event.data if isinstance(event.data, str) else json.dumps(event.data)
            return one_line(f"{event.kind}  {data}")

    return {
        Format.TABLE: line,
        Format.WIDE: lambda event: f"{line(event)}  {event.id}",
        Format.NAME: lambda event: one_line(name(event)),
        Format.JSON: _as_json,
    }


def _as_json(event: StreamEvent) -> str:
    return json.dumps({"event": event.kind, "id": event.id, "data": event.data})


def _as_name(event: StreamEvent) -> str:
    data = event.data
    named = data.get("package_id") or data.get("subscriber") if isinstance(data, dict) else None
    return str(named or event.kind)


def _as_text(event: StreamEvent) -> str:
    data = event.data
    return f"{data.get('time') or '-':<27}  {event.kind:<11}  {_LINES[event.kind](data)}"


def _package(data: Mapping[str, Any]) -> str:
    paths = [*data["paths"], *(f"{path} and below" for path in data["deep_paths"])]
    more = f" (+{len(paths) - 1})" if len(paths) > 1 else ""
    shown = f"{paths[0]}{more}" if paths else "-"
    action = data["action"] or "(unreadable)"
    return f"{data['offset']}  {action}  {shown}  by {data['user'] or '-'}  {data['package_id']}"


def _status(data: Mapping[str, Any]) -> str:
    reason = f" after {data['attempts']} attempts: {data['reason']}" if data["reason"] else ""
    return f"{data['offset']}  {data['subscriber']} {data['status']}{reason}"


def _distributed(data: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {len(data[name])}"
        for name in ("imported", "removed", "failed", "skipped", "away")
        if data[name]
    ]
    state = data.get("state") or "DISTRIBUTED"
    return f"{data['offset']}  {state}  {', '.join(parts) or 'nobody'}  {data['package_id']}"


def _subscriber(data: Mapping[str, Any]) -> str:
    return f"{data['offset']}  {data['subscriber']} is {data['state']}  {data['last_error']}"


def _gap(data: Mapping[str, Any]) -> str:
    requested, found = data["from_offset"], data["to_offset"]
    return f"{data['source']} events from offset {requested} on are lost ({data['reason']}); " + (
        f"it goes on at {found}"
    )


_LINES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "package": _package,
    "status": _status,
    "distributed": _distributed,
    "subscriber": _subscriber,
    "gap": _gap,
}
_SHOWN = forms(_as_text, _as_name)
