"""`packhorse get jobs|job|schedules|job-queues` and `packhorse job add|retry|stop|remove`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from packhorse.client.exchange import Document, gathered, with_query
from packhorse.errors import Permanent
from packhorse.jobs.conditions import template_of
from packhorse.runtime.command_options import with_options
from packhorse_services.cli.client import completion, output
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.options import (
    After,
    Cursor,
    Key,
    Output,
    Seconds,
    Timeout,
    Watch,
)
from packhorse_services.cli.client.output import again
from packhorse_services.cli.client.views import Format
from packhorse_services.cli.jobs import tailing, views
from packhorse_services.cli.queues import get

job = typer.Typer(help="Add a job, retry, stop or remove it, follow it.", no_args_is_help=True)

_PAGE = 200

Number = Annotated[int, typer.Argument(min=1, help="The job's number.")]

# Which jobs are shown.
State = Annotated[
    str,
    typer.Option(
        help="all, active, queued, history, cancelled, succeeded, stopped, given_up, error or "
        "dropped."
    ),
]
OfTopic = Annotated[
    str | None,
    typer.Option(help="A topic, or a pattern: images/**.", autocompletion=completion.job_topics),
]
OfQueue = Annotated[
    str | None, typer.Option(help="Those of this queue.", autocompletion=completion.job_queues)
]
WithId = Annotated[str | None, typer.Option("--id", help="The one with this id.")]
Where = Annotated[
    list[str] | None,
    typer.Option(help="A condition on a property, such as 'size>=10'; all have to hold."),
]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many.")]

# What a new job is.
Topic = Annotated[
    str,
    typer.Argument(help="What the job is: images/thumbnail.", autocompletion=completion.job_topics),
]
Properties = Annotated[str, typer.Option(metavar="JSON", help="The job's properties: an object.")]
NewId = Annotated[
    str | None, typer.Option("--id", help="Topic and id are one job, however often given.")
]
Application = Annotated[
    str,
    typer.Option(help="Whose job it is; who gives the same --id again makes it run once more."),
]

# When, where and in which order a new job is done.
Priority = Annotated[
    int, typer.Option(min=-100, max=100, help="The higher first, except in an ORDERED queue.")
]
Delay = Annotated[float | None, typer.Option(min=0, help="Seconds; not before.")]
OnlyOn = Annotated[
    str | None,
    typer.Option(help="The one instance that may do it; @leader: the topic's first consumer."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Until it has ended.")]


@dataclass(frozen=True, kw_only=True)
class JobSelection:
    """Which jobs are shown."""

    state: State = "all"
    topic: OfTopic = None
    queue: OfQueue = None
    identifier: WithId = None
    where: Where = None


@get.command("jobs")
@with_options
def get_jobs(
    context: typer.Context,
    *,
    selected: JobSelection,
    form: Output = Format.TABLE,
    limit: Limit = 20,
    cursor: Cursor = None,
    watch: Watch = False,
) -> None:
    """Show jobs: unfinished ones oldest first, history newest first."""
    requested = {"state": selected.state.upper(), "topic": selected.topic, "queue": selected.queue}
    requested |= {"id": selected.identifier, "cursor": cursor}
    requested |= {"template": _template(selected.where or [])}
    path = with_query("/jobs", **requested)
    with context.ensure_object(Connection).jobs() as service:
        listing = partial(gathered, path, "jobs", limit, _PAGE, "jobs")
        again(lambda: _show(service.run(listing()), "jobs", form), watch=watch)


def _template(conditions: list[str]) -> str | None:
    try:
        return json.dumps(template_of(conditions)) if conditions else None
    except Permanent as error:
        raise CommandFailed(f"--where: {error}", Exit.USAGE) from error


def _show(document: Document, rows: str, form: Format) -> None:
    table, row = _LISTS[rows]
    if form is not Format.JSON:
        document = Document({**document, rows: [row(one) for one in document[rows]]})
    table.show(document, form)


_LISTS = {
    "jobs": (views.JOBS, views.job_row),
    "queues": (views.QUEUES, views.queue_row),
    "topics": (views.TOPICS, views.topic_row),
    "schedules": (views.SCHEDULES, views.schedule_row),
}


@get.command("job")
def get_job(
    context: typer.Context, number: Number, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show a job, and the attempts that did not finish it."""
    with context.ensure_object(Connection).jobs() as service:
        again(lambda: _show_job(service.job(number), form), watch=watch)


def _show_job(document: Mapping[str, Any], form: Format) -> None:
    if form in (Format.JSON, Format.NAME):
        views.JOBS.show_one(document, form)
        return
    views.JOBS.show_one(views.job_row(document), form)
    if past := document["past_attempts"]:
        output.line("")
        views.ATTEMPTS.show({"past_attempts": past}, form)


@get.command("job-queues")
def get_job_queues(
    context: typer.Context, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show the queues of jobs: what waits in them, and how they work it off."""
    with context.ensure_object(Connection).jobs() as service:
        again(lambda: _show(service.get("/job-queues", "jobs"), "queues", form), watch=watch)


@get.command("job-topics")
def get_job_topics(
    context: typer.Context, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show the topics of jobs: what waits, and which of them no instance has a consumer for."""
    with context.ensure_object(Connection).jobs() as service:
        again(lambda: _show(service.get("/job-topics", "jobs"), "topics", form), watch=watch)


@get.command("schedules")
def get_schedules(
    context: typer.Context, form: Output = Format.TABLE, watch: Watch = False
) -> None:
    """Show the schedules: when they are due, and what they give then."""
    with context.ensure_object(Connection).jobs() as service:
        again(lambda: _show(service.get("/schedules", "jobs"), "schedules", form), watch=watch)


@dataclass(frozen=True, kw_only=True)
class NewJobOptions:
    """What the job is, beside its topic."""

    properties: Properties = "{}"
    identifier: NewId = None
    application: Application = ""
    priority: Priority = 0
    delay: Delay = None
    only_on: OnlyOn = None


@job.command("add")
@with_options
def add(
    context: typer.Context,
    *,
    topic: Topic,
    options: NewJobOptions,
    key: Key = None,
    wait: Wait = False,
    timeout: Timeout = 60.0,
) -> None:
    """Add a job and print its number; exactly one instance will do it."""
    body: dict[str, Any] = {"topic": topic, "properties": _object(options.properties)}
    body |= {"id": options.identifier, "application": options.application}
    body |= {"priority": options.priority, "delay_s": options.delay, "only_on": options.only_on}
    given = {name: value for name, value in body.items() if value is not None}
    with context.ensure_object(Connection).jobs() as service:
        added = service.add_job(**given, key=key)
        output.line(str(added["job"]["number"]))
        if added["verdict"] != "ADDED":
            output.report(_VERDICTS.get(added["verdict"], added["verdict"]))
        if wait:
            tailing.wait(service, added["job"]["number"], timeout)


_VERDICTS = {
    "EXISTING": "it was there already, and stays as it is",
    "UPDATED": "it was waiting already, and has the new properties",
    "REACTIVATED": "it was there already, and runs once more",
}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"--properties is no JSON: {error}", Exit.USAGE) from error
    if not isinstance(found, dict):
        raise CommandFailed("--properties is a JSON object, such as '{\"size\": 3}'", Exit.USAGE)
    return found


@job.command("retry")
def retry(context: typer.Context, number: Number) -> None:
    """Let a job that has ended run once more."""
    with context.ensure_object(Connection).jobs() as service:
        output.line(str(service.retry_job(number)["number"]))


@job.command("stop")
def stop(context: typer.Context, number: Number) -> None:
    """Stop a job: one that waits at once, one that runs as soon as its consumer looks."""
    with context.ensure_object(Connection).jobs() as service:
        stopped = service.stop_job(number)
        output.line(str(stopped["number"]))
        if stopped["state"] == "ACTIVE":
            output.report(f"{stopped['instance']} is asked to stop it")


@job.command("remove")
def remove(
    context: typer.Context,
    number: Number,
    *,
    even_active: Annotated[
        bool, typer.Option("--even-active", help="Take it from a consumer that does not stop.")
    ] = False,
) -> None:
    """Remove a job: one that waits ends as DROPPED, one of history is forgotten."""
    with context.ensure_object(Connection).jobs() as service:
        service.remove_job(number, even_active=even_active)


@job.command("tail")
def tail(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Argument(min=1, help="The job's number.", show_default="all jobs")
    ] = None,
    *,
    after: After = None,
    seconds: Seconds = None,
    form: Output = Format.TABLE,
) -> None:
    """Follow the log and the progress of a job until it has ended, or what becomes of all jobs."""
    with context.ensure_object(Connection).jobs() as service:
        if number is None:
            tailing.tail_all(service, after, seconds, form)
        elif after is not None:
            raise CommandFailed("--after is for the events of all jobs", Exit.USAGE)
        else:
            tailing.tail(service, number, seconds=seconds, form=form)
