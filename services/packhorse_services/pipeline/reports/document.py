"""All reports as one HTML document: it has no script, and refers to nothing outside itself."""

import html
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from packhorse_services.pipeline.reports import plots, reading
from packhorse_services.pipeline.reports.query import ReportSelection, time_text
from packhorse_services.pipeline.reports.reading import ReportTables, Row
from packhorse_services.pipeline.reports.schemas import REPORTS
from packhorse_services.pipeline.reports.summary import (
    MOST_LINES,
    MOST_ROWS,
    ReportSummary,
    Versions,
    summarise,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may do with the document: apply the styles within it, and nothing else."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1c2430; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p { color: #556; margin: .2rem 0 .6rem; }
.wide { overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .87rem; width: 100%; }
th, td { border-bottom: 1px solid #dde; padding: .25rem .6rem; text-align: left;
  vertical-align: top; }
td { overflow-wrap: anywhere; } th { background: #f4f6f9; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (prefers-color-scheme: dark) {
  body { background: #14181f; color: #e2e6ee; } p { color: #aab3c2; }
  th { background: #222936; } th, td { border-color: #343d4d; }
  svg { filter: invert(1) hue-rotate(180deg); }
}
"""

Columns = Sequence[tuple[str, str, Callable[[Any], str]]]
"""Of a table: the heading, the name in a row, and what shows the value as a cell."""


def versions_of(tables: ReportTables) -> Versions:
    """Return the newest version of every report's table. Raises `TablesAway`, `SchemaChanged`."""
    return {
        name: tables.latest(report.table, ("day", *report.columns))
        for name, report in REPORTS.items()
    }


def tag(versions: Versions, selection: ReportSelection) -> str:
    """Return the digest of the document; another for another version of any table."""
    tags = [version.tag if version else "" for version in versions.values()]
    return reading.digest("html", repr(selection), *tags)


def render(versions: Versions, selection: ReportSelection) -> str:
    """Return the document. Raises `TablesAway`."""
    summary = summarise(versions, selection)
    title = f"Delivery from {time_text(selection.begin)} to {time_text(selection.end)}"
    chosen = [f"subscriber {selection.subscriber}"] if selection.subscriber is not None else []
    chosen += [f"publisher agent {agent}" for agent in selection.agents or ()]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            f"<p>{html.escape(', '.join(chosen) or 'All subscribers, all publisher agents')}.</p>",
            *_sections(summary, selection),
            "</body></html>",
            "",
        ]
    )


def _sections(summary: ReportSummary, selection: ReportSelection) -> list[str]:
    if summary.is_empty:
        return ["<p>Nothing was measured in these hours.</p>"]
    return [
        *_figures(summary, (selection.begin, selection.end)),
        *_table("Subscribers", _SUBSCRIPTION_NOTE, _SUBSCRIPTION, summary.subscriptions),
        *_table("Publisher agents", _PUBLISHER_NOTE, _PUBLISHER, summary.publishers),
        *_table("Failures", _FAILURE_NOTE, _FAILURE, summary.failures),
        *_table("Slowest paths", "From accepted to imported.", _SLOWEST, summary.slowest),
    ]


def _figures(summary: ReportSummary, period: plots.Period) -> list[str]:
    if not summary.hours:
        return []
    who = f"The {MOST_LINES} subscribers with most deliveries, by hour."
    drawn = [
        ("Latency", f"{who} The line is p95, the band p50 to p99.", plots.latency),
        ("Throughput", who, plots.throughput),
        ("Backlog", f"{who} Packages not imported when the hour ended.", plots.backlog),
        ("Time blocked", who, plots.blocked),
    ]
    return [
        f'<h2>{title}</h2><p>{note}</p><div class="wide">{plot(summary.hours, period)}</div>'
        for title, note, plot in drawn
    ]


def _table(title: str, note: str, columns: Columns, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return [f"<h2>{title}</h2><p>None.</p>"]
    cut = f" The first {MOST_ROWS} are shown." if len(rows) == MOST_ROWS else ""
    head = "".join(f"<th>{heading}</th>" for heading, _, _ in columns)
    lines = ["<tr>" + "".join(f(row[name]) for _, name, f in columns) + "</tr>" for row in rows]
    opening = f'<h2>{title}</h2><p>{note}{cut}</p><div class="wide"><table><thead><tr>{head}'
    return [f"{opening}</tr></thead><tbody>", *lines, "</tbody></table></div>"]


def _words(value: str) -> str:
    clean = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in value
    )
    return f"<td>{html.escape(clean)}</td>"


def _count(value: int | None) -> str:
    return f'<td class="n">{"–" if value is None else f"{value:,}"}</td>'


def _seconds(value: int | None) -> str:
    return f'<td class="n">{"–" if value is None else f"{value / 1000:,.3f} s"}</td>'


def _minutes(value: int | None) -> str:
    return f'<td class="n">{"–" if value is None else f"{value / 60_000:,.1f} min"}</td>'


def _hour(value: datetime) -> str:
    return f"<td>{time_text(value)}</td>"


_LATENCY: Columns = [
    ("p50", "p50", _seconds),
    ("p95", "p95", _seconds),
    ("p99", "p99", _seconds),
    ("longest", "slowest", _seconds),
]
_WORST = "p50 is the mean of the hours', by packages; p95 and p99 are those of the worst hour."
_SUBSCRIPTION_NOTE = f"From accepted to imported. {_WORST}"
_PUBLISHER_NOTE = f"From accepted to in the journal. {_WORST}"
_WHO: Columns = [
    ("subscriber", "subscriber", _words),
    ("publisher agent", "publisher_agent", _words),
]
_SUBSCRIPTION: Columns = [
    *_WHO,
    ("delivered", "delivered", _count),
    *_LATENCY,
    ("bytes", "bytes", _count),
    ("attempts", "attempts", _count),
    ("failures", "failures", _count),
    ("removed", "removed", _count),
    ("skipped", "skipped", _count),
    ("backlog", "backlog", _count),
    ("blocked", "blocked_ms", _minutes),
]
_PUBLISHER: Columns = [
    ("publisher agent", "publisher_agent", _words),
    ("packages", "packages", _count),
    ("adds", "adds", _count),
    ("deletes", "deletes", _count),
    ("invalidates", "invalidates", _count),
    ("tests", "tests", _count),
    ("bytes", "bytes", _count),
    *_LATENCY,
]
_FAILURE: Columns = [
    *_WHO,
    ("kind", "kind", _words),
    ("count", "count", _count),
    ("reasons", "reasons", _count),
    ("one of them", "reason", _words),
]
_FAILURE_NOTE = "Failed attempts, most first. Reasons that name other paths are of one kind."
_SLOWEST: Columns = [
    ("hour", "hour", _hour),
    *_WHO,
    ("path", "path", _words),
    ("paths", "paths", _count),
    ("latency", "latency_ms", _seconds),
    ("package", "package_id", _words),
    ("offset", "offset", _count),
]
