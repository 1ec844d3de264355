"""What the HTML report shows: the measures of its hours, added up by the reader of the tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from packhorse_services.pipeline.reports import query
from packhorse_services.pipeline.reports.query import ReportSelection
from packhorse_services.pipeline.reports.reading import Row, TableVersion
from packhorse_services.pipeline.reports.schemas import (
    DELIVERY,
    FAILURES,
    PUBLISHING,
    SLOWEST,
    ReportKind,
)
from packhorse_services.pipeline.storage.queries import one_of

Versions = Mapping[str, TableVersion | None]
"""The version of each report's table, by the report's name."""

MOST_LINES = 8
"""Subscribers that a plot shows."""
MOST_ROWS = 200

_PATH = """(''/[^'']*''|"/[^"]*")"""
"""A quoted path within a reason: reasons that differ by their paths alone are of one kind."""

_LATENCY = (
    "CAST(sum(latency_p50_ms * CAST({weight} AS double)) / nullif(sum("
    "CASE WHEN latency_p50_ms IS NULL THEN 0 ELSE {weight} END), 0) AS bigint) AS p50",
    "max(latency_p95_ms) AS p95",
    "max(latency_p99_ms) AS p99",
    "max(latency_max_ms) AS slowest",
)


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """Rows for tables, and `hours` for plots: one for each hour and subscriber shown there."""

    subscriptions: list[Row]
    publishers: list[Row]
    failures: list[Row]
    slowest: list[Row]
    hours: list[Row]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.subscriptions or self.publishers or self.failures or self.slowest)


def summarise(versions: Versions, selection: ReportSelection) -> ReportSummary:
    """Return the sums. Raises `TablesAway`."""

    def ask(
        report: ReportKind, columns: list[str], rest: str, chosen: ReportSelection
    ) -> list[Row]:
        version = versions[report.name]
        if version is None:
            return []
        return list(version.rows(query.select(columns, chosen.where(report), rest)))

    subscriptions = ask(
        DELIVERY, _SUBSCRIPTION, _by("subscriber, publisher_agent", "delivered"), selection
    )
    of_agents = replace(selection, subscriber=None)
    return ReportSummary(
        subscriptions=subscriptions,
        publishers=ask(PUBLISHING, _PUBLISHER, _by("publisher_agent", "packages"), of_agents),
        failures=ask(
            FAILURES, _FAILURE, _by("subscriber, publisher_agent, kind", "count"), selection
        ),
        slowest=ask(
            SLOWEST, _SLOWEST, f"ORDER BY latency_ms DESC, hour, path LIMIT {MOST_ROWS}", selection
        ),
        hours=ask(DELIVERY, _HOUR, _hours_of(subscriptions), selection),
    )


_SUBSCRIPTION = [
    "subscriber",
    "publisher_agent",
    "sum(delivered) AS delivered",
    *(column.format(weight="delivered") for column in _LATENCY),
    "sum(bytes) AS bytes",
    "sum(attempts) AS attempts",
    "sum(failures) AS failures",
    "sum(removed) AS removed",
    "sum(skipped) AS skipped",
    "last_value(backlog_end ORDER BY hour) AS backlog",
    "sum(blocked_ms) AS blocked_ms",
]
_PUBLISHER = [
    "publisher_agent",
    "sum(packages) AS packages",
    "sum(adds) AS adds",
    "sum(deletes) AS deletes",
    "sum(invalidates) AS invalidates",
    "sum(tests) AS tests",
    "sum(bytes) AS bytes",
    *(column.format(weight="packages") for column in _LATENCY),
]
_FAILURE = [
    "subscriber",
    "publisher_agent",
    rf"regexp_replace(left(reason, 500), '{_PATH}', '…', 'g') AS kind",
    "count(DISTINCT reason) AS reasons",
    "min(left(reason, 500)) AS reason",
    'sum("count") AS "count"',
]
_SLOWEST = [
    "hour",
    "subscriber",
    "publisher_agent",
    "left(path, 500) AS path",
    "paths",
    "latency_ms",
    "left(package_id, 100) AS package_id",
    '"offset"',
]
_HOUR = [
    "hour",
    "subscriber",
    "sum(delivered) AS delivered",
    "max(latency_p50_ms) AS p50",
    "max(latency_p95_ms) AS p95",
    "max(latency_p99_ms) AS p99",
    "sum(backlog_end) AS backlog",
    "sum(blocked_ms) AS blocked_ms",
]


def _by(key: str, weight: str) -> str:
    return f'GROUP BY {key} ORDER BY "{weight}" DESC, {key} LIMIT {MOST_ROWS}'


def _hours_of(subscriptions: list[Row]) -> str:
    """Return the rest of the query for the hours of the subscribers with most deliveries."""
    names = list(dict.fromkeys(row["subscriber"] for row in subscriptions))[:MOST_LINES]
    chosen = one_of("subscriber", names)
    return f"AND {chosen} GROUP BY hour, subscriber ORDER BY subscriber, hour"
