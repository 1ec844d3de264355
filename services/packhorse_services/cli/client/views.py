"""How documents of the API look as tables, as names and as JSON."""

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.text import Text

from packhorse.runtime.plain_text import one_line
from packhorse_services.cli.client import output

_BETWEEN = 3
_STATES = {
    "green": "IDLE IMPORTED APPLIED DISTRIBUTED ACTIVE",
    "yellow": "PARTLY_DISTRIBUTED STALE PAUSED STOPPED RETRYING SKIPPED DUPLICATE DROPPED "
    "CANCELLED",
    "red": "BLOCKED GAP JOURNAL_MISMATCH REMOVED_FAILED REJECTED GIVEN_UP ERROR FAILED",
}
_STYLES = {state: style for style, states in _STATES.items() for state in states.split()}


class Format(enum.StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class View:
    """Which list of a document is shown, and which fields of its rows.

    A field may reach into a nested object: `head.attempts`.
    """

    rows: str
    name: str
    columns: Mapping[str, str]
    wide: Mapping[str, str]
    note: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """What is printed beside a table; empty for nothing."""
    whole: Mapping[str, str] = field(default_factory=dict)
    """Columns of the document itself, which a table of its own shows before the rows."""

    def show_one(self, row: Mapping[str, Any], form: Format) -> None:
        """Write a document that is a single row to stdout."""
        self.show(row if form is Format.JSON else {self.rows: [row]}, form)

    def show(self, document: Mapping[str, Any], form: Format) -> None:
        """Write the document to stdout."""
        if form is Format.JSON:
            output.line(json.dumps(document, indent=2))
        elif form is Format.NAME:
            for row in document[self.rows]:
                output.line(one_line(str(row[self.name])))
        else:
            columns = {**self.columns, **(self.wide if form is Format.WIDE else {})}
            if self.whole:
                show_table(self.whole, [document])
                output.line("")
            show_table(columns, document[self.rows])
            if not document[self.rows]:
                output.report("nothing to show" + (" on this page" if document.get("next") else ""))
            elif note := self.note(document):
                output.report(note)
        if form is not Format.JSON:
            _report_more(document)


def _slowest(document: Mapping[str, Any]) -> str:
    """Name the live subscribers that are furthest behind."""
    kinds = {"slowest": "slowest", "slowest editable": "slowest_editable"}
    reported = [
        f"{title}: {row['subscriber']} ({_reach(row, 'length')} waiting)"
        for title, kind in kinds.items()
        if (row := document.get(kind))
    ]
    return ", ".join(reported)


def _report_more(document: Mapping[str, Any]) -> None:
    """Say that a list goes on behind its page, and how to see the rest."""
    if following := document.get("next"):
        cursor = httpx.URL(following).params.get("cursor")
        output.report(f"there is more: use --cursor {cursor}, or a higher --limit")


QUEUES = View(
    rows="queues",
    name="subscriber",
    columns={
        "SUBSCRIBER": "subscriber",
        "STATE": "state",
        "LENGTH": "length",
        "ATTEMPTS": "head.attempts",
        "ERRORS": "errors",
        "LAG": "lag_seconds",
        "REASON": "reason",
    },
    wide={
        "OFFSET": "offset",
        "HEAD": "head.offset",
        "EDITABLE": "editable",
        "NEXT ATTEMPT": "head.next_attempt_at",
    },
    note=_slowest,
)
_POINT = {"TIME": "time", "LAG": "lag_seconds", "LENGTH": "length", "RATE": "rate"}
HISTORY = View(rows="history", name="time", columns=_POINT, wide={})
_PACKAGE = {"PACKAGE": "package_id", "USER": "user", "TIME": "time"}
QUEUE = View(
    rows="entries",
    name="package_id",
    columns={"OFFSET": "offset", "ACTION": "action", "PATHS": "paths", "DEEP PATHS": "deep_paths"},
    wide={**_PACKAGE, "SIZE": "size", "TARGETS": "targets"},
    whole=QUEUES.columns,
)
ERRORS = View(
    rows="entries",
    name="package_id",
    columns={
        "OFFSET": "offset",
        "ACTION": "action",
        "PATHS": "paths",
        "DEEP PATHS": "deep_paths",
        "ATTEMPTS": "attempts",
        "REASON": "reason",
    },
    wide={**_PACKAGE, "REDISTRIBUTED AS": "redistributed_as"},
)
DISTRIBUTIONS = View(
    rows="distributions",
    name="id",
    columns={
        "ID": "id",
        "STATE": "state",
        "ACTION": "action",
        "PATHS": "paths",
        "DEEP PATHS": "deep_paths",
        "ACCEPTED": "accepted_at",
    },
    wide={"TARGETS": "targets", "OFFSET": "offset", "USER": "user", "SIZE": "size"},
)
RELEASES = View(
    rows="releases",
    name="id",
    columns={
        "NAME": "name",
        "STATE": "state",
        "AT": "at",
        "ACTION": "action",
        "PATHS": "paths",
        "DEEP PATHS": "deep_paths",
        "REASON": "reason",
    },
    wide={"ID": "id", "TARGETS": "targets", "USER": "user", "PACKAGE": "package_id"},
)
COMMANDS = View(
    rows="commands",
    name="command_id",
    columns={
        "COMMAND": "command_id",
        "KIND": "kind",
        "SUBSCRIBER": "subscriber",
        "OFFSET": "offset",
        "STATE": "state",
        "REMOVED": "removed",
        "BY": "issued_by",
        "ISSUED": "issued_at",
    },
    wide={"SEEN": "seen_at", "ENDED": "ended_at", "REASON": "reason"},
)
SUBSCRIBERS = View(
    rows="subscribers",
    name="subscriber",
    columns={
        "SUBSCRIBER": "subscriber",
        "STATE": "state",
        "OFFSET": "offset",
        "BEHIND": "behind",
        "LAG": "lag_seconds",
        "INCOMPLETE": "incomplete",
        "LAST SEEN": "last_seen",
    },
    wide={
        "EDITABLE": "editable",
        "MAX RETRIES": "max_retries",
        "ATTEMPTS": "attempts",
        "NEXT ATTEMPT": "next_attempt_at",
        "BLOCKED SINCE": "blocked_since",
        "LAST ERROR": "last_error",
        "ENDPOINT": "endpoint",
        "INSTANCE": "instance",
        "INCLUDE": "include",
        "EXCLUDE": "exclude",
        "MAPPED PATHS": "map_paths",
        "EXCLUDED PROPERTIES": "exclude_properties",
    },
)
DISTRIBUTION = View(
    rows="subscribers",
    name="subscriber",
    columns={
        "SUBSCRIBER": "subscriber",
        "STATE": "state",
        "STALE": "stale",
        "ATTEMPTS": "attempts",
        "REASON": "reason",
    },
    wide={"NEXT ATTEMPT": "next_attempt_at", "SINCE": "since", "IMPORTED BY": "imported_by"},
    whole=DISTRIBUTIONS.columns,
)


PRODUCER = View(
    rows="producers",
    name="name",
    columns={
        "PRODUCER": "name",
        "EPOCH": "epoch",
        "LAST": "last_sequence",
        "IN THE JOURNAL": "last_persisted_sequence",
        "USED": "used_at",
    },
    wide={"REGISTERED": "registered_at"},
)


def show_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows to stdout as plain columns; a terminal wraps what is too long for it."""
    lines = [[Text(title, "bold") for title in columns]]
    lines += [[_cell(field, _reach(row, field)) for field in columns.values()] for row in rows]
    for column in zip(*lines, strict=True):
        width = max(cell.cell_len for cell in column) + _BETWEEN
        for cell in column:
            cell.pad_right(width - cell.cell_len)
    for line in lines:
        shown = Text().join(line)
        shown.rstrip()
        output.data.print(shown, soft_wrap=True)


def _reach(row: Mapping[str, Any], field: str) -> Any:
    value: Any = row
    for part in field.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return _instead(row, field) if value in (None, "") else value


def _instead(row: Mapping[str, Any], field: str) -> str | None:
    """Return what is known of a length that is not known exactly, as `12–40`; for a name the id."""
    if field == "name":
        return row.get("id")
    prefix = {"length": "", "behind": "behind_"}.get(field)
    if prefix is None or f"{prefix}at_least" not in row:
        return None
    return f"{row[f'{prefix}at_least']}–{row[f'{prefix}at_most']}"


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f}".removesuffix(".0") + " s"


def _cell(field: str, value: Any) -> Text:
    style = _STYLES.get(value, "") if field == "state" else ""
    return Text(one_line(_cell_text(field, value)), style)


def _cell_text(field: str, value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{name} at {one}" for name, one in value.items()]
    if isinstance(value, list):
        return f"{value[0]}" + (f" (+{len(value) - 1})" if len(value) > 1 else "")
    if field.endswith(("_s", "lag_seconds")):
        return f"{value:.0f} s" if field == "lag_seconds" else _seconds(value)
    return str(value)
