"""`packhorse-cleanup`, and `python -m packhorse_services.cleanup`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.db.connect import connect
from packhorse.db.prepare import prepare_database
from packhorse.db.transactions import bookkeeping
from packhorse.jobs.host import LEADER_TASKS
from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.serve import configured, run_service
from packhorse.runtime.startup import plain_refusals, typed
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.app import LEADER_TASK, cleanup_service, sweep_of
from packhorse_services.cleanup.report import as_lines, with_removals
from packhorse_services.cleanup.runner import run_by_hand
from packhorse_services.cleanup.settings import Settings
from packhorse_services.cleanup.sweep import ForeignLog, Sweep

_SHOWN = 1000
logger = logging.getLogger(__name__)

commands = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Remove packages from the blob store that the journal has forgotten.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@commands.callback(invoke_without_command=True)
def serve(context: typer.Context) -> None:
    """Clean up by schedule, and serve over HTTP, when no command is named."""
    if context.invoked_subcommand is not None:
        return
    settings = configured(Settings)
    authenticator = authenticator_for(settings)
    with _backends(settings) as (journal, blobs):
        wanted = standard_topics(settings.topics, kept_hours=settings.keep_packages_hours)
        journal.create_topics(wanted)
        _begin(settings, sweep_of(settings, journal, blobs), journal)
        announced = InstanceProperties(
            "cleanup", endpoint=settings.endpoint, leader_tasks=(LEADER_TASK, *LEADER_TASKS)
        )
        cluster = join(settings.database_url.get_secret_value(), settings, announced)
        service = cleanup_service(settings, journal, blobs, authenticator, cluster)
        run_service(service.app, settings, service.components)


@commands.command()
def run(
    dry_run: Annotated[bool, typer.Option(help="Say what would go, remove nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Clean up now, and print what was removed and why."""
    settings = loaded(Settings)
    logs.configure(settings.log_format, "WARNING")
    url = settings.database_url.get_secret_value()
    with _backends(settings) as (journal, blobs):
        done = run_by_hand(url, sweep_of(settings, journal, blobs), dry_run=dry_run)
    with connect(url, "cleanup-report") as connection:
        removals = ledger.removals(connection, done.id, "", None if as_json else _SHOWN)
    if as_json:
        shown = with_removals(done, removals)
        typer.echo(shown.model_dump_json(by_alias=True, exclude_unset=True, indent=2))
    else:
        for line in as_lines(done, removals):
            typer.echo(line)


def _begin(settings: Settings, sweep: Sweep, journal: Journal) -> None:
    """Say at once what would let every run fail."""
    with (
        connect(settings.database_url.get_secret_value(), "packhorse-cleanup") as connection,
        bookkeeping(connection),
    ):
        try:
            sweep.require_published(connection, journal.identity(settings.topics.package))
        except ForeignLog as error:
            logger.warning("nothing will be removed: %s", error)


@contextmanager
def _backends(settings: Settings) -> Iterator[tuple[Journal, BlobStore]]:
    prepare_database(settings.database_url.get_secret_value(), "packhorse-cleanup")
    blobs = open_blobs(settings.blobs_url)
    journal = open_journal(settings.journal_url, client_name="packhorse-cleanup")
    try:
        yield journal, blobs
    finally:
        journal.close()
        blobs.close()


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    with plain_refusals():
        commands(prog_name=typed("packhorse-cleanup", "packhorse_services.cleanup"))


if __name__ == "__main__":
    main()
