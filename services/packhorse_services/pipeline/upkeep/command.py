"""`packhorse-pipeline upkeep`."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from packhorse.blobs.open import open_blobs
from packhorse.runtime.command_options import with_options
from packhorse.runtime.configuration import InvalidConfiguration, loaded
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.snapshots.store import all_of
from packhorse_services.pipeline.engine.exit_codes import as_typed
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.archive_location import archive_at
from packhorse_services.pipeline.upkeep.task import (
    LEAST_DAYS,
    RetentionPlan,
    expected,
    keep_up,
    plan,
)


@dataclass(frozen=True, kw_only=True)
class UpkeepOptions:
    """What is kept."""

    retention_days: Annotated[
        int, typer.Option(min=LEAST_DAYS, help="Days that the archive keeps.")
    ] = 400
    measures_days: Annotated[
        int | None,
        typer.Option(min=LEAST_DAYS, help="Days that the measures keep; all without it."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Delete nothing; print what would be.")
    ] = False
    even_without_snapshot: Annotated[
        bool,
        typer.Option(
            "--even-without-snapshot",
            help="Let also packages go that no snapshot holds: new subscribers may lack them.",
        ),
    ] = False


@with_options
def upkeep(*, options: UpkeepOptions) -> None:
    """Compact the tables, delete days that have expired, and delete files that nobody reads."""
    settings = loaded(Settings)
    location = archive_at(settings.tables_url)
    with (
        _snapshots(settings, needed=not options.even_without_snapshot) as snapshots,
        running_spark(settings, location, "upkeep") as spark,
    ):
        planned = plan(
            spark,
            location,
            snapshots,
            retention_days=options.retention_days,
            measures_days=options.measures_days,
        )
        _report_what_is_held(planned)
        if options.dry_run:
            for name, count in expected(spark, location, planned).items():
                typer.echo(f"{name}: {count} would be deleted")
        else:
            keep_up(spark, location, planned, typer.echo)


def _report_what_is_held(planned: RetentionPlan) -> None:
    held, unread = planned.held_by, planned.unread_from
    if unread is not None and unread == planned.archive_from:
        typer.echo(
            f"everything from {unread} on is kept: silver has not read all of bronze from that day "
            + as_typed("on; let packhorse-pipeline archive run to its end first")
        )
    if held is not None:
        typer.echo(
            f"everything from {held.day} on is kept although it has expired: no snapshot for "
            f"everybody holds the packages of {held.publisher_agent} from offset {held.offset} on; "
            + as_typed("make one with packhorse-pipeline snapshot")
        )


@contextmanager
def _snapshots(settings: Settings, *, needed: bool) -> Iterator[Iterable[ContentSnapshot] | None]:
    if not needed:
        yield None
        return
    if not settings.blobs_url:
        raise InvalidConfiguration(
            "PACKHORSE_BLOBS_URL names no blob store, so nobody knows what snapshots hold; set it, "
            "or ask for --even-without-snapshot"
        )
    with closing(open_blobs(settings.blobs_url)) as blobs:
        yield all_of(blobs)
