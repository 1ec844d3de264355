"""`packhorse-pipeline serve`, and `packhorse-pipeline report` on the tables themselves."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.serve import run as run_service
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.presence import archive_at
from packhorse_services.pipeline.reports import document, reading
from packhorse_services.pipeline.reports.app import reports_app
from packhorse_services.pipeline.reports.known import require_measured
from packhorse_services.pipeline.reports.period import WrongPeriod, period
from packhorse_services.pipeline.reports.query import Selection
from packhorse_services.pipeline.reports.reading import MOST_ROWS, Asked, Page
from packhorse_services.pipeline.reports.schemas import REPORTS
from packhorse_services.pipeline.reports.source import ReportTables, TableVersion
from packhorse_services.pipeline.settings import Settings

Name = Literal["delivery", "failures", "slowest", "publishing"]
Begin = Annotated[
    str | None,
    typer.Option(
        "--from",
        show_default="24 hours before --to",
        help="The first hour: RFC 3339, such as 2026-11-21T10:00:00Z.",
    ),
]
End = Annotated[
    str | None, typer.Option("--to", show_default="now", help="The end of the last hour.")
]


def serve(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Instead of PACKHORSE_PORT; 0: a free one.")
    ] = None,
) -> None:
    """Serve reports over HTTP until told to end."""
    settings = loaded(Settings)
    logs.configure(settings.log_format, settings.log_level)
    location = Location.parse(settings.tables_url, only_read=True)
    app = reports_app(location, authenticator_for(settings), docs=settings.docs)
    run_service(app, host=settings.host, port=settings.port if port is None else port)


def report(
    name: Annotated[Name, typer.Argument(help="Which report.")] = "delivery",
    *,
    begin: Begin = None,
    end: End = None,
    subscriber: Annotated[str | None, typer.Option(help="Of this one only.")] = None,
    agent: Annotated[str | None, typer.Option(help="Of this publisher agent only.")] = None,
    form: Annotated[
        Literal["json", "csv", "html"], typer.Option("--format", help="html shows all reports.")
    ] = "json",
) -> None:
    """Print a report from the tables themselves."""
    try:
        hours = period(begin, end, datetime.now(UTC))
    except WrongPeriod as error:
        raise TaskRefused(f"--{error}") from None
    measured = [one.table for one in REPORTS.values()]
    url = loaded(Settings).tables_url
    tables = ReportTables(archive_at(url, only_read=True, or_else=measured))
    require_measured(tables, subscriber, agent)
    selection = Selection(*hours, subscriber, None if agent is None else (agent,))
    if form == "html":
        sys.stdout.write(document.render(document.versions_of(tables), selection))
        return
    asked = Asked(REPORTS[name], selection, MOST_ROWS, form=form)
    version = reading.version_of(tables, asked)
    pages = _pages(version, asked)
    if form == "json":
        rows = [row for page in pages for row in page.rows]
        sys.stdout.write(reading.as_json(asked, Page(rows, None), None) + "\n")
        return
    for number, page in enumerate(pages):
        sys.stdout.write(reading.as_csv(asked.report.columns, page, header=number == 0))


def _pages(version: TableVersion | None, asked: Asked) -> Iterator[Page]:
    """Yield the report a page in memory, all of one version."""
    behind = None
    while True:
        page = reading.read_page(version, Asked(asked.report, asked.selection, MOST_ROWS, behind))
        yield page
        if page.last_key is None:
            return
        behind = tuple(page.last_key)
