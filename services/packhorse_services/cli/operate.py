"""`packhorse pause|resume|stop subscriber` and `packhorse reset offset`: lanes, as asked."""

import time
from typing import Annotated, Any

import typer

from packhorse_services.cli import output
from packhorse_services.cli.api import Api, CommandFailed, Exit, awaited, segment
from packhorse_services.cli.connection import Connection
from packhorse_services.cli.options import SubscriberName, Timeout, Yes

pause = typer.Typer(help="Let a subscriber import nothing for now.", no_args_is_help=True)
resume = typer.Typer(
    help="Let a subscriber, a job queue or a schedule go on.", no_args_is_help=True
)
stop = typer.Typer(help="Let a subscriber let go of everything.", no_args_is_help=True)
reset = typer.Typer(help="Let a stopped subscriber go on elsewhere.", no_args_is_help=True)

Wait = Annotated[bool, typer.Option("--wait", help="Until the subscriber has done it.")]

_POLL_S = 0.25
_ANNOUNCED = {"pause": "PAUSED", "stop": "STOPPED"}


@pause.command("subscriber")
def pause_subscriber(
    context: typer.Context, name: SubscriberName, wait: Wait = False, timeout: Timeout = 60.0
) -> None:
    """Let a subscriber import nothing until it is resumed; what it has begun it ends."""
    _control(context, name, "pause", timeout if wait else None)


@resume.command("subscriber")
def resume_subscriber(
    context: typer.Context, name: SubscriberName, wait: Wait = False, timeout: Timeout = 60.0
) -> None:
    """Let a subscriber that was paused or stopped go on."""
    _control(context, name, "resume", timeout if wait else None)


@stop.command("subscriber")
def stop_subscriber(
    context: typer.Context, name: SubscriberName, wait: Wait = False, timeout: Timeout = 60.0
) -> None:
    """Let a subscriber import and read nothing; only then its offset may be changed."""
    _control(context, name, "stop", timeout if wait else None)


@reset.command("offset")
def reset_offset(
    context: typer.Context,
    name: SubscriberName,
    *,
    to: Annotated[int, typer.Option(min=-1, help="The package behind this offset comes next.")],
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = 60.0,
) -> None:
    """Let a stopped subscriber go on behind another offset, once it is resumed."""
    asked = f"Let {name} go on behind offset {to}? Its content may differ from the others' then."
    if not yes and not typer.confirm(asked, err=True):
        raise CommandFailed("nothing was changed", Exit.FAILED)
    with context.ensure_object(Connection).publisher() as publisher:
        command = publisher.patch(f"/subscribers/{segment(name)}/offset", {"offset": to})
        _tell(publisher, command, timeout if wait else None)


def await_end(publisher: Api, command_id: str, timeout: float) -> dict[str, Any]:
    """Return a command once its subscriber has applied it.

    Raises `CommandFailed`: with `TIMEOUT` when that takes too long, `FAILED` when it was rejected.
    """
    deadline = time.monotonic() + timeout
    while True:
        found: dict[str, Any] = awaited(publisher, f"/commands/{command_id}", deadline)
        if found["state"] == "APPLIED":
            return found
        if found["state"] == "REJECTED":
            raise CommandFailed(f"{found['subscriber']} rejected it: {found['reason']}")
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"not done after {timeout:g} s, the command is {found['state']}; it stays in force",
                Exit.TIMEOUT,
            )
        time.sleep(_POLL_S)


def _control(context: typer.Context, name: str, action: str, timeout: float | None) -> None:
    path = f"/subscribers/{segment(name)}"
    deadline = time.monotonic() + (timeout or 0)
    with context.ensure_object(Connection).publisher() as publisher:
        _tell(publisher, publisher.put(f"{path}/{action}"), timeout)
        if timeout is not None:
            _await_announcement(publisher, path, action, deadline)


def _await_announcement(publisher: Api, path: str, action: str, deadline: float) -> None:
    """Return once the subscriber says what it was told: a reset is refused before it does."""
    while True:
        state = awaited(publisher, path, deadline)["state"]
        standing = state if state in _ANNOUNCED.values() else None
        if standing == _ANNOUNCED.get(action):
            return
        if time.monotonic() > deadline:
            raise CommandFailed(f"the subscriber says {state}; look again later", Exit.TIMEOUT)
        time.sleep(_POLL_S)


def _tell(publisher: Api, command: dict[str, Any], timeout: float | None) -> None:
    """Print the command's id, and wait for its end when that is asked for."""
    output.line(command["command_id"])
    if timeout is not None:
        await_end(publisher, command["command_id"], timeout)
    output.tell(
        f"{command['subscriber']} is told to {command['kind'].lower()} its lane of agent "
        f"{command['agent']}, and no other"
    )
