"""Reports as CSV (RFC 4180) that a spreadsheet takes for data, whatever is in it."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from packhorse_services.pipeline.reports import period
from packhorse_services.pipeline.reports.source import Row

MEDIA_TYPE = "text/csv; charset=utf-8"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def table(columns: Sequence[str], rows: Iterable[Row], *, header: bool = True) -> str:
    """Return a line for each row, below the columns' names unless `header` is false.

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
