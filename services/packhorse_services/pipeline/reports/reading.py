"""The tables of measures as delta-rs reads them, and pages of them as JSON and CSV."""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from packhorse.errors import Transient
from packhorse_services.pipeline.errors import SchemaChanged
from packhorse_services.pipeline.reports.query import ReportSelection, page, time_text
from packhorse_services.pipeline.reports.schemas import ReportKind
from packhorse_services.pipeline.storage import queries
from packhorse_services.pipeline.storage.location import Location, said_by
from packhorse_services.pipeline.storage.queries import Value

_PATIENCE = {"connect_timeout": "3s", "timeout": "20s", "max_retries": "2", "retry_timeout": "20s"}
"""A caller waits for the answer; the client's own patience is minutes."""

Row = dict[str, Any]


class TablesAway(Transient):
    """The place of the tables can't be reached, or a table changed while it was read."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table. `tag` differs between any two, a table made anew included."""

    tag: str
    _table: DeltaTable

    def rows(self, sql: str) -> Iterator[Row]:
        """Yield what a query on `RELATION` gives, a batch in memory. Raises `TablesAway`."""
        with _reaching(OSError):  # a query that is wrong is a fault of ours
            yield from queries.rows(self._table, sql)


@dataclass(frozen=True, slots=True)
class ReportTables:
    """The tables below one place, which others write."""

    location: Location

    def check(self) -> None:
        """Raise `TablesAway` unless the place can be reached."""
        if self.location.is_s3:
            self.latest("measures", ())
        elif not Path(self.location.base).is_dir():
            raise TablesAway(
                f"the folder {self.location.base} is not there; check PACKHORSE_TABLES_URL, or "
                "make an archive there with packhorse-pipeline archive"
            )

    def latest(self, name: str, columns: Sequence[str]) -> TableVersion | None:
        """Return the table's newest version, or None for a table that nobody has written yet.

        Raises `TablesAway`, and `SchemaChanged` unless it has the columns.
        """
        if not self.location.is_s3:
            self.check()
        options = self.location.delta_options()
        with _reaching(DeltaError, OSError):
            try:
                table = DeltaTable(
                    self.location.delta_uri(name),
                    storage_options={**options, **_PATIENCE} if self.location.is_s3 else None,
                )
            except TableNotFoundError:
                return None
            found = {field.name for field in table.schema().fields}
            tag = f"{table.metadata().id}-{table.version()}"
        if missing := [column for column in columns if column not in found]:
            raise SchemaChanged(
                f"table {name} lacks the column {missing[0]}, another build has written it; remove "
                "the folder measures, and run packhorse-pipeline measures --all"
            )
        return TableVersion(tag, table)


@contextmanager
def _reaching(*faults: type[Exception]) -> Iterator[None]:
    try:
        yield
    except faults as error:
        raise TablesAway(f"the tables can't be read now: {said_by(error)[:300]}") from error


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
        return time_text(value)
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
        return time_text(value)
    reported = str(value)
    if isinstance(value, str) and reported.lstrip(" ").startswith(_FORMULA):
        return "'" + reported
    return reported
