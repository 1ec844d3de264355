"""Plots as SVG that stands in an HTML document and refers to nothing outside it."""

import io
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packhorse_services.pipeline.reports.source import Row

_ONE_AT_A_TIME = threading.Lock()
"""Matplotlib's settings are the process's."""

_SETTINGS = {
    "text.parse_math": False,  # a name is not TeX, whatever it holds
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "date.converter": "concise",
    "grid.alpha": 0.3,
}
_SIZE = (9.0, 2.6)
_PERCENTILES = ("p50", "p95", "p99")
_NAME = 40


def latency(hours: Sequence[Row]) -> str:
    """Return how long deliveries took, for each subscriber: its p95, with p50 to p99 around it."""

    def draw(axes: Any) -> None:
        for name, rows in _by_subscriber(hours).items():
            measured = [row for row in rows if None not in (row[p] for p in _PERCENTILES)]
            times = [row["hour"] for row in measured]
            low, middle, high = ([row[p] / 1000 for row in measured] for p in _PERCENTILES)
            (line,) = axes.plot(times, middle, marker=".", label=name)
            axes.fill_between(times, low, high, alpha=0.12, color=line.get_color(), linewidth=0)

    return _plot("latency", "seconds", draw)


def throughput(hours: Sequence[Row]) -> str:
    """Return how many packages an hour each subscriber imported."""
    return _lines("throughput", "packages an hour", hours, lambda row: row["delivered"])


def backlog(hours: Sequence[Row]) -> str:
    """Return how many packages waited for each subscriber when the hour ended."""
    return _lines("backlog", "packages", hours, lambda row: row["backlog"])


def blocked(hours: Sequence[Row]) -> str:
    """Return for how many minutes of the hour each subscriber was blocked."""
    return _lines("blocked", "minutes an hour", hours, lambda row: row["blocked_ms"] / 60_000)


def _lines(name: str, unit: str, hours: Sequence[Row], value: Callable[[Row], float | None]) -> str:
    def draw(axes: Any) -> None:
        for subscriber, rows in _by_subscriber(hours).items():
            points = [(row["hour"], value(row)) for row in rows]
            known = [point for point in points if point[1] is not None]
            axes.plot(
                [time for time, _ in known], [y for _, y in known], marker=".", label=subscriber
            )

    return _plot(name, unit, draw)


def _by_subscriber(hours: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in hours:
        found.setdefault(_shown(row["subscriber"]), []).append(row)
    return found


def _shown(name: str) -> str:
    """Return a name that XML and a legend can hold; one that begins with _ would be left out."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in name)[:_NAME]
    return f" {clean}" if clean.startswith("_") else clean


def _plot(name: str, unit: str, draw: Callable[[Any], None]) -> str:
    """Draw on axes of time; ids in the SVG begin with what `name` hashes to."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {**_SETTINGS, "svg.hashsalt": name}
    with _ONE_AT_A_TIME, mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about letters that its own font lacks
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        axes.xaxis_date("UTC")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    text = file.getvalue()
    return text[text.index("<svg") :]
