"""Plots as SVG that stands in an HTML document and refers to nothing outside it."""

import io
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from packhorse_services.pipeline.reports.reading import Row

_ONE_AT_A_TIME = threading.Lock()
"""Matplotlib's settings are the process's."""

_SETTINGS = {
    "text.parse_math": False,  # a name is not TeX, whatever it holds
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "date.converter": "concise",
    "grid.alpha": 0.3,
}
_SIZE = (9.0, 2.6)
_PERCENTILES = ("p50", "p95", "p99")
_NAME = 40
_TOGETHER = 3
"""Of subscribers with one line, so many are named."""
_HALF = timedelta(minutes=30)
_MARKS = "os^Dv*Px"
"""A shape for each line, so that it can be recognized without its colour."""

Period = tuple[datetime, datetime]
"""The first hour, and the end of the last one."""
Points = tuple[datetime, float, float, float]
"""An hour with the value, and what the band around it goes from and to: low, value, high."""
Line = tuple[Points, ...]


def latency(hours: Sequence[Row], period: Period) -> str:
    """Return how long deliveries took, for each subscriber: its p95, with p50 to p99 around it."""
    return _plot("latency", "seconds", hours, period, _latencies)


def throughput(hours: Sequence[Row], period: Period) -> str:
    """Return how many packages an hour each subscriber imported."""
    return _plot("throughput", "packages an hour", hours, period, _values("delivered"))


def backlog(hours: Sequence[Row], period: Period) -> str:
    """Return how many packages waited for each subscriber when the hour ended."""
    return _plot("backlog", "packages", hours, period, _values("backlog"))


def blocked(hours: Sequence[Row], period: Period) -> str:
    """Return for how many minutes of the hour each subscriber was blocked."""
    return _plot("blocked", "minutes an hour", hours, period, _values("blocked_ms", 1 / 60_000))


def _latencies(rows: Sequence[Row]) -> Iterator[Points]:
    for row in rows:
        low, middle, high = (row[percentile] for percentile in _PERCENTILES)
        if None not in (low, middle, high):
            yield row["hour"], low / 1000, middle / 1000, high / 1000


def _values(name: str, scale: float = 1) -> Callable[[Sequence[Row]], Iterator[Points]]:
    def points(rows: Sequence[Row]) -> Iterator[Points]:
        following: datetime | None = None
        for row in rows:
            if row[name] is not None:
                if following is not None and row["hour"] > following:
                    yield following, math.nan, math.nan, math.nan  # nothing is known: no line
                value = row[name] * scale
                yield row["hour"], value, value, value
                following = row["hour"] + 2 * _HALF

    return points


def _by_subscriber(hours: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in hours:
        found.setdefault(row["subscriber"], []).append(row)
    return found


def _shown(name: str) -> str:
    """Return a name that XML and a legend can hold; one that begins with _ would be left out."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in name)[:_NAME]
    return f" {clean}" if clean.startswith("_") else clean


def _plot(
    name: str,
    unit: str,
    hours: Sequence[Row],
    period: Period,
    points: Callable[[Sequence[Row]], Iterator[Points]],
) -> str:
    """Draw a line a subscriber over the period; ids in the SVG begin with what `name` hashes to."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {**_SETTINGS, "svg.hashsalt": name}
    with _ONE_AT_A_TIME, mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about letters that its own font lacks
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        lines = {who: tuple(points(rows)) for who, rows in _by_subscriber(hours).items()}
        for names, line in _equal_ones(lines):
            _draw(axes, line, names, list(lines).index(names[0]))
        _scale(axes, unit, period, whole=unit.startswith("packages"))
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    text = file.getvalue()
    return text[text.index("<svg") :]


def _equal_ones(lines: Mapping[str, Line]) -> list[tuple[list[str], Line]]:
    """Return each line once, with the names of all whose line it is."""
    names: dict[Line, list[str]] = {}
    for who, line in lines.items():
        names.setdefault(line, []).append(who)
    return [(equal, line) for line, equal in names.items()]


def _draw(axes: Any, line: Line, names: Sequence[str], number: int) -> None:
    """Draw a line with the band around it, marks in the middle of their hours."""
    more = f" and {len(names) - _TOGETHER} more" if len(names) > _TOGETHER else ""
    times = [hour + _HALF for hour, *_ in line]
    low, middle, high = ([point[place] for point in line] for place in (1, 2, 3))
    style = {"marker": _MARKS[number % len(_MARKS)], "color": f"C{number}"}
    label = ", ".join(map(_shown, names[:_TOGETHER])) + more
    axes.plot(times, middle, **style, markersize=5, clip_on=False, label=label)
    if len(line) == 1:
        axes.vlines(times, low, high, alpha=0.35, color=style["color"])
    elif low != high:
        axes.fill_between(times, low, high, alpha=0.12, color=style["color"], linewidth=0)


def _scale(axes: Any, unit: str, period: Period, *, whole: bool) -> None:
    """Let the axes show the whole period from zero, with marks at whole packages."""
    from matplotlib.ticker import MaxNLocator

    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], 1 if whole else 0.001))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=whole))
    axes.set_xlim(*period)
    axes.xaxis_date("UTC")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
