"""Lines of the HTML report's plots."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from packhorse_services.pipeline.reports import plots

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PERIOD = (NOON, NOON + timedelta(hours=12))


def row(hour: int, subscriber: str = "sub1") -> dict[str, Any]:
    latency = dict.fromkeys(("p50", "p95", "p99"), 1000)
    counts = {"delivered": hour + 1, "backlog": hour, "blocked_ms": 0}
    return {"subscriber": subscriber, "hour": NOON + timedelta(hours=hour), **latency, **counts}


def lines(svg: str) -> list[str]:
    """Return what is drawn of each line but the axes and the grid."""
    drawn = re.findall(r'<path d="([^"]*)"[^>]*style="fill: none; stroke: (#\w+)', svg)
    assert drawn
    return [path for path, colour in drawn if colour in ("#1f77b4", "#ff7f0e")]


def test_a_line_stops_where_nothing_is_known() -> None:
    hours = [row(0), row(1), row(4), row(5)]
    for plot in (plots.throughput, plots.backlog, plots.blocked):
        line, *_ = lines(plot(hours, PERIOD))
        assert line.count("M") == 2
    line, *_ = lines(plots.latency(hours, PERIOD))
    assert line.count("M") == 1, "hours without deliveries have no latency"


def test_subscribers_whose_names_begin_alike_have_lines_of_their_own() -> None:
    name = "x" * 60
    hours = [row(0, f"{name}1"), row(1, f"{name}1"), row(2, f"{name}2"), row(3, f"{name}2")]
    svg = plots.throughput(hours, PERIOD)
    assert svg.count(f"{'x' * 40}</text>") == 2
