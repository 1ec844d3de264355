"""Lines drawn as SVG by the server: an axis from the data, with its unit, broken where unknown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from packhorse.client.exchange import Document

Values = Sequence[float | None]

SPARK_WIDTH, SPARK_HEIGHT = 120, 24
WIDTH, HEIGHT = 360, 150
_LEFT, _TOP, _RIGHT, _BOTTOM = 58, 10, 24, 24
_TIMES = ((120.0, 1.0, "s"), (7_200.0, 60.0, "min"), (172_800.0, 3_600.0, "h"))
_DAY = 86_400.0, "d"
_COLUMNS = ((2 * 3_600, 900), (8 * 3_600, 3_600), (float("inf"), 6 * 3_600))
"""Seconds of a line, at most, and between the round times that are named below it."""
_HOUR = timedelta(hours=1)
_EDGE = 2
"""What a line keeps of the height, so that its own width is not cut off."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A small line without axes; `most` is its highest point, in seconds."""

    path: str
    most: float | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A line with axes. Marks are positions with what stands there."""

    title: str
    unit: str
    path: str
    rows: Sequence[tuple[float, str]]
    columns: Sequence[tuple[float, str]]
    said: str
    """The line in words."""


def trends(history: Document) -> dict[str, Trend]:
    """Return the line of each subscriber's lag in the last hour."""
    return {one["subscriber"]: _trend(one) for one in history["queues"]}


def _trend(queue: Document) -> Trend:
    lags: Values = queue["lag_seconds"]
    most = max((lag for lag in lags if lag is not None), default=None)
    box = 0, _EDGE, SPARK_WIDTH, SPARK_HEIGHT - 2 * _EDGE
    return Trend(_path(lags, most or 1, box), most, queue["rate"])


def charts(history: Document) -> list[Chart]:
    """Return lag, length and rate of a queue as lines."""
    return [
        _times("Lag", history["lag_seconds"], history),
        _chart("Waiting", "packages", history["length"], history),
        _chart("Done", "packages a minute", history["rate"], history),
    ]


def delivery_charts(since: str, until: str, rows: Sequence[Document]) -> list[Chart]:
    """Return what subscriptions have delivered, hour by hour, as lines: all of them together."""
    begin, end = datetime.fromisoformat(since), datetime.fromisoformat(until)
    hours: list[list[Document]] = [[] for _ in range(min(max(1, int((end - begin) / _HOUR)), 24))]
    for row in rows:
        place = int((datetime.fromisoformat(row["hour"]) - begin) / _HOUR)
        if 0 <= place < len(hours):
            hours[place].append(row)

    def added(name: str) -> Values:
        return [sum(one[name] for one in rows) if rows else None for rows in hours]

    latest = [
        max(
            (one["latency_p95_ms"] for one in rows if one["latency_p95_ms"] is not None),
            default=None,
        )
        for rows in hours
    ]
    period = Document(since=since, step_seconds=_HOUR.total_seconds())
    return [
        _chart("Delivered", "packages an hour", added("delivered"), period),
        _times("95 % within, at the slowest", _of_ms(latest), period),
        _chart("Waiting when the hour ended", "packages", added("backlog_end"), period),
        _times("Blocked", _of_ms(added("blocked_ms")), period),
    ]


def _of_ms(values: Values) -> Values:
    return [None if one is None else one / 1_000 for one in values]


def _times(title: str, seconds: Values, history: Document) -> Chart:
    """Return a line of times, in the unit that fits the longest."""
    most = max((one for one in seconds if one is not None), default=0)
    size, unit = next(((size, unit) for limit, size, unit in _TIMES if most < limit), _DAY)
    return _chart(title, unit, [None if one is None else one / size for one in seconds], history)


def _chart(title: str, unit: str, values: Values, history: Document) -> Chart:
    known = [value for value in values if value is not None]
    top, wide, high = _round_above(max(known, default=0)), WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP
    box = _LEFT, _TOP, wide, high - _BOTTOM
    rows = [(HEIGHT - _BOTTOM - box[3] * part, _number(top * part)) for part in (0, 0.5, 1)]
    said = f"{title}: nothing is known"
    if known:
        last, most = (f"{one:,.1f}".removesuffix(".0") for one in (known[-1], max(known)))
        said = f"{title}: at the end {last}, at most {most} {unit}"
    return Chart(title, unit, _path(values, top, box), rows, _columns(history, len(values)), said)


def _round_above(most: float) -> int:
    """Return the end of an axis: its half is a whole number as well."""
    size = 1
    while True:
        for digit in (2, 4, 10):
            if digit * size >= most:
                return digit * size
        size *= 10


def _number(mark: float) -> str:
    """Return what has room beside an axis."""
    if mark >= 1_000_000:
        return f"{mark / 1_000_000:g}M"
    return f"{mark / 1_000:g}k" if mark >= 10_000 else f"{mark:,.0f}"


def _columns(history: Document, points: int) -> list[tuple[float, str]]:
    """Return where round times lie, in UTC."""
    since = datetime.fromisoformat(history["since"]).astimezone(UTC)
    span_s = points * history["step_seconds"]
    step_s = next(step_s for most_s, step_s in _COLUMNS if span_s <= most_s)
    first_s = -since.timestamp() % step_s
    wide = WIDTH - _LEFT - _RIGHT
    marks = (first_s + number * step_s for number in range(int((span_s - first_s) // step_s) + 1))
    return [(_LEFT + wide * at / span_s, f"{since + timedelta(seconds=at):%H:%M}") for at in marks]


def _path(values: Values, top: float, box: tuple[float, float, float, float]) -> str:
    """Return the line in a box (left, top, width, height), a part of it where values are known."""
    left, above, wide, high = box
    places = [
        None
        if value is None
        else (
            round(left + wide * (number + 0.5) / len(values)),
            round(above + high * (1 - value / top), 1),
        )
        for number, value in enumerate(values)
    ]
    parts = groupby(places, key=lambda place: place is not None)
    return "".join(_part([place for place in part if place]) for known, part in parts if known)


def _part(places: Sequence[tuple[int, float]]) -> str:
    """Return one part; of points at one height in a row, the first and the last."""
    kept = [
        place
        for number, place in enumerate(places)
        if number in (0, len(places) - 1)
        or not places[number - 1][1] == place[1] == places[number + 1][1]
    ]
    ends = kept if len(kept) > 1 else [*kept, *kept]
    return f"M{_line(ends)}"


def _line(places: Iterable[tuple[int, float]]) -> str:
    return " ".join(f"{x} {y:g}" for x, y in places)
