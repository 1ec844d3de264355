"""One page of a report, in the form that was asked for."""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from packhorse_services.pipeline.reports import period
from packhorse_services.pipeline.reports.query import ReportSelection, page
from packhorse_services.pipeline.reports.schemas import ReportKind
from packhorse_services.pipeline.reports.source import ReportTables, Row, TableVersion
from packhorse_services.pipeline.storage.queries import Value

Form = Literal["json", "csv"]
MOST_ROWS = 10_000
CSV = "text/csv; charset=utf-8"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class ReportPage:
    """Rows of a report, and the key of the last one when there are more behind it."""

    rows: list[Row]
    last_key: list[Value] | None


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """What a caller wants of a report."""

    report: ReportKind
    selection: ReportSelection
    limit: int = 1000
    behind: tuple[Value, ...] | None = None
    form: Form = "json"

    def tag(self, version: TableVersion | None) -> str:
        """Return the digest of the answer: another for another table version or question."""
        return digest(version.tag if version else "", repr(self.report.name), repr(self))


def digest(*parts: str) -> str:
    """Return a short digest of texts."""
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


def version_of(tables: ReportTables, requested: ReportQuery) -> TableVersion | None:
    """Return the version that answers. Raises `TablesAway`, `SchemaChanged`."""
    return tables.latest(requested.report.table, ("day", *requested.report.columns))


def read_page(version: TableVersion | None, requested: ReportQuery) -> ReportPage:
    """Return a page, an empty one of a table that is not there. Raises `TablesAway`."""
    if version is None:
        return ReportPage([], None)
    sql, keys = page(requested.report, requested.selection, requested.behind, requested.limit + 1)
    found = list(version.rows(sql))
    rows, more = found[: requested.limit], len(found) > requested.limit
    last = [rows[-1][f"key_{number}"] for number in range(keys)] if more else None
    return ReportPage(
        [{name: row[name] for name in requested.report.columns} for row in rows], last
    )


def as_json(requested: ReportQuery, page: ReportPage, following: str | None) -> str:
    """Return the page as a JSON document."""
    document = {
        "from": requested.selection.begin,
        "to": requested.selection.end,
        "next": following,
        "rows": page.rows,
    }
    return json.dumps(document, default=_plain)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return period.text(value)
    raise TypeError(f"{type(value).__name__} is no value of a report")


def as_csv(columns: Sequence[str], rows: Iterable[Row], *, header: bool = True) -> str:
    """Return a line for each row (RFC 4180), below the columns' names unless `header` is false.

    A text that a spreadsheet would run as a formula gets an apostrophe before it.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    if header:
        writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[column]) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return period.text(value)
    reported = str(value)
    if isinstance(value, str) and reported.lstrip(" ").startswith(_FORMULA):
        return "'" + reported
    return reported
