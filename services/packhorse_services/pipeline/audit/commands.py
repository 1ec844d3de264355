"""`packhorse-pipeline audit`."""

import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from packhorse.clock import SystemClock
from packhorse.content.node import ROOT, check_path
from packhorse.errors import Transient
from packhorse.runtime.command_options import with_options
from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.audit.outcome import (
    Audited,
    ExitCode,
    exit_code,
    listed,
    shortfall,
)
from packhorse_services.pipeline.engine.exit_codes import error_text, report_error
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.archive_location import archive_at
from packhorse_services.pipeline.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What is compared, and how much is shown."""

    subscriber: Annotated[
        list[str] | None,
        typer.Option("--subscriber", help="Only this one; may be repeated."),
    ] = None
    path: Annotated[str, typer.Option("--path", help="Only this node and all below.")] = ROOT
    since_start: Annotated[
        bool,
        typer.Option(
            "--since-start", help="Of subscriptions that began late, expect only what followed."
        ),
    ] = False
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            min=0,
            max=3600,
            help="Seconds to wait for the archive, for each one; then it archives by itself.",
        ),
    ] = 60.0
    limit: Annotated[int, typer.Option("--limit", min=0, help="Paths shown of each one.")] = 100


@with_options
def audit_command(
    *,
    options: AuditOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one line of JSON.")
    ] = False,
) -> None:
    """Compare subscribers with the archive, each at its own offset, without locking them.

    Exits with 0 when all are equal, 1 when one differs, 3 when one could not be
    compared; why, says a line on stderr. Of subscribers without a database in
    the settings it prints the names, whatever it exits with.
    """
    settings = loaded(Settings)
    databases = _chosen(settings, options.subscriber or [])
    run = f"audit-{SystemClock().wall_ms()}-{secrets.token_hex(4)}"
    try:
        audited, others = _audited(settings, databases, run, options)
    except Transient as error:
        report_error(f"the audit failed: {error_text(error)}")
        raise typer.Exit(ExitCode.UNKNOWN) from None
    report(run, audited, others, as_json=as_json)
    code = exit_code(audited)
    if code is not ExitCode.EQUAL:
        report_error(shortfall(run, audited))
        raise typer.Exit(code)


def report(run: str, audited: Sequence[Audited], others: Sequence[str], *, as_json: bool) -> None:
    """Print what was found, and who was not audited for want of a database; that on stderr too."""
    if as_json:
        subscribers = [one.as_json() for one in audited]
        typer.echo(json.dumps({"run": run, "subscribers": subscribers, "not_audited": others}))
    else:
        typer.echo(f"table audit/{run}")
        for line in (line for one in audited for line in one.lines()):
            typer.echo(line)
        for name in others:
            typer.echo(f"{name}: not audited")
    if others:
        typer.echo(
            f"not audited: {listed(others, 20)}; live, but not in "
            "PACKHORSE_SUBSCRIBER_DATABASES: add their databases there",
            err=True,
        )


def _chosen(settings: Settings, wanted: list[str]) -> dict[str, str]:
    known = {n: url.get_secret_value() for n, url in settings.subscriber_databases.items()}
    unknown = sorted(set(wanted) - known.keys())
    if unknown:
        raise TaskRefused(f"PACKHORSE_SUBSCRIBER_DATABASES names no {unknown[0]!r}")
    settings.require("subscriber_databases", "blobs_url")
    return {name: url for name, url in known.items() if not wanted or name in wanted}


def _audited(
    settings: Settings, databases: dict[str, str], run: str, options: AuditOptions
) -> tuple[list[Audited], list[str]]:
    """Return what was found and, unless it was for some only, who is live without a database."""
    from packhorse_services.pipeline.audit.archived import ArchiveEnd, unaudited
    from packhorse_services.pipeline.audit.expected import Expectations
    from packhorse_services.pipeline.audit.task import Audit
    from packhorse_services.pipeline.engine.session import running_spark

    location = archive_at(settings.tables_url)
    with running_spark(settings, location, "audit") as spark:
        archive = _archiving(settings, spark, location)
        end = ArchiveEnd(location, settings.topics.package, options.wait, archive)
        made = Expectations(spark, end, settings.blobs_url, since_start=options.since_start)
        with closing(made) as expectations:
            known = settings.subscriber_databases.keys()
            others = [] if options.subscriber else unaudited(location, known)
            path, limit = check_path(options.path), options.limit
            return Audit(spark, location, run, expectations, path, limit).all(databases), others


def _archiving(
    settings: Settings, spark: "SparkSession", location: Location
) -> Callable[[], None] | None:
    """Return what archives the rest of the journal; None without a journal.

    Nor without the author's database: an archive that is at work beside the audit would be ended.
    """
    from packhorse_services.pipeline.archive.lease import only_run
    from packhorse_services.pipeline.archive.query import ArchivedJournal
    from packhorse_services.pipeline.archive.task import Archive

    if not settings.journal_url or not settings.author_url:
        return None
    archive = Archive(
        spark, location, ArchivedJournal(settings.journal_url, settings.topics), settings.blobs_url
    )

    def archive_rest() -> None:
        with only_run(settings.author_url, location.shown) as keep:
            archive.run(keep)

    return archive_rest
