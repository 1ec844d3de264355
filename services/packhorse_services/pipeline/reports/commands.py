"""`packhorse-pipeline report`, on the tables themselves."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from packhorse.runtime.command_options import with_options
from packhorse.runtime.configuration import loaded
from packhorse.runtime.whole_file import whole_file
from packhorse_services.pipeline.errors import NotThere, TaskRefused
from packhorse_services.pipeline.reports import document, reading
from packhorse_services.pipeline.reports.query import ReportSelection, WrongPeriod, period
from packhorse_services.pipeline.reports.reading import (
    MOST_ROWS,
    ReportPage,
    ReportQuery,
    ReportTables,
    TableVersion,
)
from packhorse_services.pipeline.reports.schemas import REPORTS
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.archive_location import archive_at
from packhorse_services.pipeline.storage.queries import RELATION, literal

Form = Literal["json", "csv", "html"]
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


@dataclass(frozen=True, kw_only=True)
class ReportChoice:
    """What the report covers."""

    begin: Begin = None
    end: End = None
    subscriber: Annotated[str | None, typer.Option(help="Of this one only.")] = None
    agent: Annotated[str | None, typer.Option(help="Of this publisher agent only.")] = None


@with_options
def report(
    *,
    name: Annotated[Name, typer.Argument(help="Which report.")] = "delivery",
    selected: ReportChoice,
    form: Annotated[Form, typer.Option("--format", help="html shows all reports.")] = "json",
    output: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write it to this file.")
    ] = None,
) -> None:
    """Print a report from the tables themselves, or write it to a file."""
    try:
        hours = period(selected.begin, selected.end, datetime.now(UTC))
    except WrongPeriod as error:
        raise TaskRefused(f"--{error}") from None
    measured = [one.table for one in REPORTS.values()]
    url = loaded(Settings).tables_url
    tables = ReportTables(archive_at(url, only_read=True, or_else=measured))
    require_measured(tables, selected.subscriber, selected.agent)
    selection = ReportSelection(
        *hours, selected.subscriber, None if selected.agent is None else (selected.agent,)
    )
    with _written(output) as file:
        for part in _parts(name, tables, selection, form):
            file.write(part.encode())


@contextmanager
def _written(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        return
    try:
        with whole_file(output) as file:
            yield file
    except OSError as error:
        raise TaskRefused(f"--output {output} can't be written: {error.strerror}") from error


def _parts(
    name: Name, tables: ReportTables, selection: ReportSelection, form: Form
) -> Iterator[str]:
    """Yield the text of a report."""
    if form == "html":
        yield document.render(document.versions_of(tables), selection)
        return
    requested = ReportQuery(REPORTS[name], selection, MOST_ROWS, form=form)
    pages = _pages(reading.version_of(tables, requested), requested)
    if form == "json":
        rows = [row for page in pages for row in page.rows]
        yield reading.as_json(requested, ReportPage(rows, None), None) + "\n"
        return
    for number, page in enumerate(pages):
        yield reading.as_csv(requested.report.columns, page.rows, header=number == 0)


def _pages(version: TableVersion | None, requested: ReportQuery) -> Iterator[ReportPage]:
    """Yield the report a page in memory, all of one version."""
    behind = None
    while True:
        page = reading.read_page(
            version, ReportQuery(requested.report, requested.selection, MOST_ROWS, behind)
        )
        yield page
        if page.last_key is None:
            return
        behind = tuple(page.last_key)


def require_measured(tables: ReportTables, subscriber: str | None, agent: str | None) -> None:
    """Raise `NotThere` for a subscriber or a publisher agent that no table of measures names.

    Hours do not count: who was silent in those of a report is known all the same.
    """
    for column, name in (("subscriber", subscriber), ("publisher_agent", agent)):
        if name is not None:
            _require(tables, column, name)


def _require(tables: ReportTables, column: str, name: str) -> None:
    for report in REPORTS.values():
        if column not in report.columns:
            continue
        version = tables.latest(report.table, (column,))
        found = f"SELECT 1 AS found FROM {RELATION} WHERE {column} = {literal(name)} LIMIT 1"  # noqa: S608 - quoted
        if version is not None and any(version.rows(found)):
            return
    what = column.replace("_", " ")
    raise NotThere(
        f"the tables have no measures of {what} {name!r}; correct the name, or run "
        "packhorse-pipeline archive and measures first"
    )
