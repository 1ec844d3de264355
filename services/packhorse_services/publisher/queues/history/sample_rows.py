"""Samples of an agent's queues as rows: one a minute, with a column of each figure.

All of it runs in the caller's transaction, as the bookkeeper; minutes are the database's.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection, Connection

KEPT_S = 25 * 3600.0


class QueueSample(NamedTuple):
    """Of one queue at a moment."""

    subscriber: str
    lag_s: float | None
    """None when its first package is older than what is in memory."""
    length: int | None
    """What is known, at least; None when nothing is."""
    rate: float | None
    """Packages a minute that left the queue since a minute ago; None when that is not known."""
    settled: int = -1
    """The offset up to which it is certain what the subscriber did; -1 when nothing is."""
    started: int = -1
    """The offset behind which it began."""


class HistoryWindow(NamedTuple):
    """The last `points` times `step` minutes, the one that runs included."""

    points: int
    step: int


_WRITE = """
    INSERT INTO bookkeeping.queue_sample
        (agent, sampled_at, subscribers, lags, lengths, rates, settled, started)
    VALUES (%s, date_trunc('minute', clock_timestamp()), %s::text[], %s::real[], %s::bigint[],
        %s::real[], %s::bigint[], %s::bigint[])
    ON CONFLICT DO NOTHING
"""

_SINCE = """
    SELECT date_trunc('minute', clock_timestamp()) - make_interval(mins => %s - 1)
"""

_READ_ALL = """
    SELECT floor(extract(epoch FROM sampled_at - %(since)s) / %(step_s)s)::int,
        to_json(subscribers), to_json(lags), to_json(rates)
    FROM bookkeeping.queue_sample
    WHERE agent = %(agent)s AND sampled_at >= %(since)s
        AND sampled_at < %(since)s + make_interval(mins => %(minutes)s)
    ORDER BY sampled_at
"""
"""As JSON, which is read four times as fast as arrays are."""

_READ_ONE = """
    SELECT floor(extract(epoch FROM sampled_at - %(since)s) / %(step_s)s)::int,
        max(lags[place]), max(lengths[place]),
        round(avg(rates[place])::numeric, 1)::float8
    FROM bookkeeping.queue_sample CROSS JOIN LATERAL (
        SELECT array_position(subscribers, %(subscriber)s) AS place OFFSET 0) AS at
    WHERE agent = %(agent)s AND sampled_at >= %(since)s
        AND sampled_at < %(since)s + make_interval(mins => %(minutes)s) AND place IS NOT NULL
    GROUP BY 1
"""

_REACHED = """
    SELECT one.name, (extract(epoch FROM min(taken_at)) * 1000)::bigint
    FROM bookkeeping.queue_sample
    CROSS JOIN unnest(subscribers, settled, started) AS one (name, reached, began)
    WHERE agent = %(agent)s
        AND sampled_at >= to_timestamp(%(since_s)s) - interval '1 minute'
        AND sampled_at < to_timestamp(%(since_s)s) + make_interval(secs => %(within_s)s)
        AND extract(minute FROM sampled_at)::int %% %(every)s = 0
        AND taken_at > to_timestamp(%(since_s)s)
        AND one.began < %(offset)s AND one.reached >= %(offset)s
    GROUP BY one.name
"""
"""Of all names: a prepared statement compares each with each of an array, 2 s for 1,000 of them."""
_LOOKED = ((600.0, 1), (KEPT_S, 10))
"""Seconds since a package was accepted, and of how many samples one is looked at until then."""

_FORGET = """
    DELETE FROM bookkeeping.queue_sample WHERE (agent, sampled_at) IN (
        SELECT agent, sampled_at FROM bookkeeping.queue_sample
        WHERE sampled_at < clock_timestamp() - make_interval(secs => %s) LIMIT %s)
"""


def write(connection: Connection, agent: str, samples: Sequence[QueueSample]) -> None:
    """Store the sample of this minute, of one queue at least, unless there is one."""
    connection.execute(_WRITE, (agent, *map(list, zip(*samples, strict=True))))


async def read_all(
    connection: AsyncConnection, agent: str, window: HistoryWindow
) -> tuple[datetime, Sequence[tuple[int, list[str], list[float | None], list[float | None]]]]:
    """Return when the window begins, and samples: the point, and subscribers, lags and rates."""
    requested = await _requested(connection, agent, window)
    rows = await (await connection.execute(_READ_ALL, requested)).fetchall()
    return requested["since"], rows


async def read_one(
    connection: AsyncConnection, agent: str, window: HistoryWindow, subscriber: str
) -> tuple[datetime, Sequence[tuple[int, float | None, int | None, float | None]]]:
    """Return when the window begins, and points of a subscriber: lag, length and rate."""
    requested = await _requested(connection, agent, window)
    found = await connection.execute(_READ_ONE, {**requested, "subscriber": subscriber})
    return requested["since"], await found.fetchall()


async def first_past(
    connection: AsyncConnection, agent: str, offset: int, since_ms: float, names: Sequence[str]
) -> dict[str, int]:
    """Return when each of these was first seen to be done with the package at an offset.

    In milliseconds, by the first sample that says it, so it was earlier; once the package is ten
    minutes old one sample in ten is looked at. Without those of which none says it.
    """
    found: dict[str, int] = {}
    for within_s, every in _LOOKED:
        missing = set(names) - found.keys()
        if missing:
            asked = {"agent": agent, "offset": offset, "since_s": since_ms / 1000}
            looked = {**asked, "within_s": within_s, "every": every}
            rows = await (await connection.execute(_REACHED, looked)).fetchall()
            found |= {name: at for name, at in rows if name in missing}
    return found


async def _requested(
    connection: AsyncConnection, agent: str, window: HistoryWindow
) -> dict[str, Any]:
    minutes = window.points * window.step
    [(since,)] = await (await connection.execute(_SINCE, (minutes,))).fetchall()
    return {"agent": agent, "since": since, "step_s": window.step * 60, "minutes": minutes}


def forget(connection: Connection, older_than_s: float, limit: int) -> int:
    """Remove up to `limit` samples older than that; returns how many."""
    return connection.execute(_FORGET, (older_than_s, limit)).rowcount
