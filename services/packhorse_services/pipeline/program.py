"""The commands of `packhorse-pipeline`: a task each, and what serves and submits."""

import typer

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.archive.command import archive
from packhorse_services.pipeline.at.command import at
from packhorse_services.pipeline.audit.commands import audit_command
from packhorse_services.pipeline.bulk.command import bulk
from packhorse_services.pipeline.engine.jars import fetch_jars
from packhorse_services.pipeline.measures.command import measures
from packhorse_services.pipeline.reports.commands import report, serve
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.snapshot.command import snapshot
from packhorse_services.pipeline.submit import submit
from packhorse_services.pipeline.sweep.commands import mark_command, sweep_command
from packhorse_services.pipeline.upkeep.command import upkeep
from packhorse_services.pipeline.worker.command import worker

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
    """Fetch the jars that Spark needs, unless they are there, and print their folder."""
    settings = loaded(Settings)
    typer.echo(fetch_jars(settings.spark_jars, settings.ivy_settings))


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
