"""`packhorse events`: follows what happens, as `tail -f` does, over lost connections too."""

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated, Any, NoReturn
from urllib.parse import urlencode

import typer
from httpx_sse import ServerSentEvent

from packhorse_services.cli.client import output
from packhorse_services.cli.client.api import Api, CommandFailed, Exit, NoAnswer, Refused
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.options import After, Output, Seconds
from packhorse_services.cli.client.views import Format

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


class TimeIsUp(BaseException):
    """The seconds that the user gave have passed."""


def follow_events(
    context: typer.Context,
    *,
    types: Annotated[
        str, typer.Option(help="Some of package, status, distributed, subscriber.")
    ] = "package,status,distributed",
    subscriber: Annotated[
        str | None, typer.Option(help="Only what is about this one: no package.")
    ] = None,
    after: After = None,
    seconds: Seconds = None,
    form: Output = Format.TABLE,
) -> None:
    """Follow packages, what becomes of them, and the states of subscribers."""
    behind = event_id(after)
    query = {"types": types} | ({} if subscriber is None else {"subscriber": subscriber})
    path = f"/events?{urlencode(query)}"
    connection = context.ensure_object(Connection)
    with connection.publisher() as publisher, suppress(TimeIsUp), ending_after(seconds):
        for event in follow(publisher, path, behind):
            output.line(_SHOWN[form](event))


def event_id(after: str | None) -> str:
    """Return what `--after` names, "" for nothing. Raises `CommandFailed` when it is empty."""
    if after is not None and not after.strip():
        raise CommandFailed("--after is empty; name an event's id, or leave it out", Exit.USAGE)
    return after or ""


def follow(
    publisher: Api, path: str, last_id: str = "", *, pause: Callable[[float], None] = time.sleep
) -> Iterator[ServerSentEvent]:
    """Yield events for ever; where the connection is lost, the next one goes on behind the last.

    Raises `CommandFailed` when the first connection fails, and when the service refuses for good.
    """
    connected, wait = False, _FIRST_PAUSE_S
    while True:
        try:
            with publisher.follow(path, last_id) as blocks:
                for block in blocks:
                    connected, wait = True, (block.retry or 1000 * wait) / 1000
                    last_id = block.id or last_id
                    if block.data:
                        yield block
        except NoAnswer as error:
            if not connected:
                raise
            output.tell(f"{error}; trying again in {wait:g} s")
        except Refused as error:
            if not connected or not _is_passing(error):
                raise
            wait = max(wait, error.retry_after_s or 0)
            output.tell(f"{error}")
        pause(wait)
        wait = min(2 * wait, _LONGEST_PAUSE_S)


def _is_passing(error: Refused) -> bool:
    """Tell whether the same request may be taken later; a proxy says nothing of when."""
    return error.status == 429 or error.status >= 500


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


def as_json(event: ServerSentEvent) -> str:
    """Return an event as one line of JSON."""
    return json.dumps({"event": event.event, "id": event.id, "data": _data(event)})


def _as_name(event: ServerSentEvent) -> str:
    data = _data(event)
    named = data.get("package_id") or data.get("subscriber") if isinstance(data, dict) else None
    return printable(str(named or event.event))


def _data(event: ServerSentEvent) -> Any:
    try:
        return event.json()
    except ValueError:
        return event.data


def _as_line(event: ServerSentEvent) -> str:
    try:
        data = event.json()
        told = f"{data.get('time') or '-':<27}  {event.event:<11}  {_LINES[event.event](data)}"
    except (ValueError, KeyError, TypeError, AttributeError):  # a later version's
        told = f"{event.event}  {event.data}"
    return printable(told)


def _as_wide_line(event: ServerSentEvent) -> str:
    return f"{_as_line(event)}  {event.id}"


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
    return (
        f"{data['offset']}  {data['subscriber']} is {data['state']}  {data['last_error']}".strip()
    )


def _gap(data: Mapping[str, Any]) -> str:
    asked, found = data["from_offset"], data["to_offset"]
    return f"{data['source']} events from offset {asked} on are lost ({data['reason']}); " + (
        f"it goes on at {found}"
    )


def printable(text: str) -> str:
    """Keep what a publisher or a subscriber wrote from steering the terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


_LINES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "package": _package,
    "status": _status,
    "distributed": _distributed,
    "subscriber": _subscriber,
    "gap": _gap,
}
_SHOWN: Mapping[Format, Callable[[ServerSentEvent], str]] = {
    Format.TABLE: _as_line,
    Format.WIDE: _as_wide_line,
    Format.NAME: _as_name,
    Format.JSON: as_json,
}
