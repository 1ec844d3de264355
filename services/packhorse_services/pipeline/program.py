"""The commands of `packhorse-pipeline`: a task each, and what serves and submits."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.archive.command import archive
from packhorse_services.pipeline.at.command import at
from packhorse_services.pipeline.audit.commands import audit_command
from packhorse_services.pipeline.bulk.command import bulk
from packhorse_services.pipeline.engine.jars import fetch_jars
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.engine.shared_classes import share_classes
from packhorse_services.pipeline.measures.hours import Hours
from packhorse_services.pipeline.measures.task import measure
from packhorse_services.pipeline.reports.commands import report, serve
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.snapshot.command import snapshot
from packhorse_services.pipeline.storage.archive_location import archive_at
from packhorse_services.pipeline.submit import submit
from packhorse_services.pipeline.sweep.commands import mark_command, sweep_command
from packhorse_services.pipeline.upkeep.command import upkeep
from packhorse_services.pipeline.worker.command import worker


def measures(
    all_hours: Annotated[
        bool,
        typer.Option("--all", help="Make all hours anew that the archive still holds whole."),
    ] = False,
) -> None:
    """Bring the hourly measures up to what the archive holds."""
    settings = loaded(Settings)
    location = archive_at(settings.tables_url)
    with running_spark(settings, location, "measures") as spark:
        typer.echo(_said(measure(spark, location, all_hours=all_hours)))


def _said(made: Hours | None) -> str:
    if made is None:
        return "the measures are up to date; nothing is new in the archive"
    since = datetime.fromtimestamp(made.since_ms / 1000, UTC)
    earlier = f", and {len(made.single_ms)} hours before" if made.single_ms else ""
    return f"measures made anew for all hours from {since:%Y-%m-%d %H:00} UTC{earlier}"


commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Archive the journal, and work on the archive, with Spark.",
)


@commands.callback()
def pipeline() -> None:
    """Take the command that follows."""


@commands.command()
def jars() -> None:
    """Fetch the jars that Spark needs, unless they are there, and print their folder.

    Beside it, the classes that every task loads are kept for quicker starts.
    """
    settings = loaded(Settings)
    folder = fetch_jars(settings.spark_jars, settings.ivy_settings)
    share_classes(settings, folder)
    typer.echo(folder)


commands.command("archive")(archive)
commands.command("bulk")(bulk)
commands.command("measures")(measures)
commands.command("upkeep")(upkeep)
commands.command("serve")(serve)
commands.command("report")(report)
commands.command(
    "submit", context_settings={"allow_extra_args": True, "allow_interspersed_args": False}
)(submit)
commands.command("audit")(audit_command)
commands.command("mark")(mark_command)
commands.command("sweep")(sweep_command)
commands.command("snapshot")(snapshot)
commands.command("at")(at)
commands.command("worker")(worker)
