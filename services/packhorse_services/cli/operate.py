"""Operate subscribers (pause, resume, stop, retry, forget, reset) and suspend what jobs do.

`resume` and `suspend` take job queues and schedules too.
"""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from packhorse.client.blocking import Client
from packhorse.client.calls import commanding
from packhorse.client.calls.commanding import Control
from packhorse_services.cli.client import completion, output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.options import SubscriberName, Timeout, Yes

pause = typer.Typer(help="Let a subscriber import nothing for now.", no_args_is_help=True)
resume = typer.Typer(
    help="Let a subscriber, a job queue or a schedule go on.", no_args_is_help=True
)
suspend = typer.Typer(help="Suspend a job queue or a schedule.", no_args_is_help=True)
stop = typer.Typer(
    help="Stop a subscriber: close its reader and its session.", no_args_is_help=True
)
retry = typer.Typer(help="Let a subscriber try again at once.", no_args_is_help=True)
forget = typer.Typer(help="Forget a subscriber that is gone.", no_args_is_help=True)
reset = typer.Typer(help="Move a stopped subscriber to another offset.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(help="The job queue.", autocompletion=completion.job_queues)]
Schedule = Annotated[str, typer.Argument(help="The schedule.", autocompletion=completion.schedules)]
Wait = Annotated[bool, typer.Option("--wait", help="Until the subscriber has done it.")]


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
    """Let a subscriber that was paused or stopped go on; what failed is tried at once."""
    _control(context, name, "resume", timeout if wait else None)


@stop.command("subscriber")
def stop_subscriber(
    context: typer.Context, name: SubscriberName, wait: Wait = False, timeout: Timeout = 60.0
) -> None:
    """Let a subscriber import and read nothing; only then its offset may be changed."""
    _control(context, name, "stop", timeout if wait else None)


@retry.command("subscriber")
def retry_subscriber(
    context: typer.Context, name: SubscriberName, wait: Wait = False, timeout: Timeout = 60.0
) -> None:
    """Let a subscriber try the package that failed again at once; its back-off begins anew."""
    with context.ensure_object(Connection).publisher() as publisher:
        _report(publisher, publisher.retry(name), timeout if wait else None)


@forget.command("subscriber")
def forget_subscriber(context: typer.Context, name: SubscriberName, yes: Yes = False) -> None:
    """Forget a subscriber that is gone for good; when it comes back it is simply known again."""
    if not yes:
        output.require_yes(f"Forget {name}?", "nobody was forgotten")
    with context.ensure_object(Connection).publisher() as publisher:
        publisher.forget(name)
    output.report(f"{name} is forgotten")


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
    """Move a stopped subscriber to another offset, where it goes on once it is resumed."""
    question = f"Let {name} go on behind offset {to}? Its content may differ from the others' then."
    if not yes:
        output.require_yes(question, "nothing was changed")
    with context.ensure_object(Connection).publisher() as publisher:
        _report(publisher, publisher.reset(name, to), timeout if wait else None)


@suspend.command("job-queue")
def suspend_queue(context: typer.Context, name: Queue) -> None:
    """Let no job of a queue begin, on any instance, until it is resumed; those under way end."""
    _set(context, "job-queues", name, "suspend")


@suspend.command("schedule")
def suspend_schedule(context: typer.Context, name: Schedule) -> None:
    """Let a schedule not fire, on any instance, until it is resumed."""
    _set(context, "schedules", name, "suspend")


@resume.command("job-queue")
def resume_queue(context: typer.Context, name: Queue) -> None:
    """Let the jobs of a suspended queue begin again."""
    _set(context, "job-queues", name, "resume")


@resume.command("schedule")
def resume_schedule(context: typer.Context, name: Schedule) -> None:
    """Resume a suspended schedule at its next fire time."""
    _set(context, "schedules", name, "resume")


def _control(context: typer.Context, name: str, action: Control, timeout: float | None) -> None:
    deadline = time.monotonic() + (timeout or 0)
    with context.ensure_object(Connection).publisher() as publisher:
        control = {"pause": publisher.pause, "resume": publisher.resume, "stop": publisher.stop}
        _report(publisher, control[action](name), timeout)
        if timeout is not None:
            publisher.run(commanding.announced(name, action, deadline - time.monotonic()))


def _report(publisher: Client, command: Mapping[str, Any], timeout: float | None) -> None:
    """Print the command's id, and wait for its end when that is asked for."""
    output.line(command["command_id"])
    output.report(
        f"{command['subscriber']} is asked to {command['kind'].lower()} its subscription of agent "
        f"{command['agent']}, and no other"
    )
    if timeout is not None:
        publisher.command_ended(command["command_id"], timeout)


def _set(context: typer.Context, kind: str, name: str, action: str) -> None:
    with context.ensure_object(Connection).jobs() as service:
        change = service.suspend if action == "suspend" else service.resume_suspended
        output.line(str(change(kind, name)["name"]))
