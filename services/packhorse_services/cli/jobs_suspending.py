"""`packhorse suspend|resume job-queue|schedule`: what begins nothing for now."""

from typing import Annotated

import typer

from packhorse_services.cli import output
from packhorse_services.cli.api import segment
from packhorse_services.cli.connection import Connection
from packhorse_services.cli.operate import resume

suspend = typer.Typer(
    help="Let a job queue or a schedule begin nothing for now.", no_args_is_help=True
)

Queue = Annotated[str, typer.Argument(help="The job queue.")]
Schedule = Annotated[str, typer.Argument(help="The schedule.")]


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
    """Let a suspended schedule go on with its next moment."""
    _set(context, "schedules", name, "resume")


def _set(context: typer.Context, kind: str, name: str, action: str) -> None:
    with context.ensure_object(Connection).jobs() as service:
        output.line(str(service.post(f"/{kind}/{segment(name)}/{action}", {})["name"]))
