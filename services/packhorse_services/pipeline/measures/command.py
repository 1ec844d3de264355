"""`packhorse-pipeline measures`."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.measures.task import measure
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.archive_location import archive_at


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


def _said(since_ms: int | None) -> str:
    if since_ms is None:
        return "the measures are up to date; nothing is new in the archive"
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return f"measures made anew for all hours from {since:%Y-%m-%d %H:00} UTC"
