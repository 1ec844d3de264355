"""Subscribers that announce themselves and are in no audit."""

from collections.abc import Collection
from datetime import UTC, datetime

from packhorse.clock import SystemClock
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.history.read import asked
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION

_LIVE_MS = 24 * 3600 * 1000
"""So long a publisher counts a subscriber after its last word."""

_MS = "arrow_cast(\"time\", 'Int64') / 1000"


def unaudited(location: Location, audited: Collection[str]) -> list[str]:
    """Return the subscribers, by name, that are live and not among those `audited`.

    Live is who announced itself in the day before the newest announcement in the archive: its
    clock is the journal's (R28), and it may not have run for a while. What says a time to come
    does not count.
    """
    now_ms = SystemClock().wall_ms()
    with translated("audit"):
        newest_ms = _newest_ms(location, now_ms)
        if newest_ms is None:
            return []
        since_ms = newest_ms - _LIVE_MS
        days = f"day BETWEEN {_day(since_ms)} AND {_day(newest_ms)}"
        live = f"{days} AND {_MS} BETWEEN {since_ms} AND {now_ms}"
        sql = f"SELECT DISTINCT subscriber FROM {RELATION} WHERE {live}"  # noqa: S608 - numbers
        names = (row["subscriber"] for row in asked(location, tables.ANNOUNCEMENTS, sql))
        return sorted(set(names).difference(audited))


def _newest_ms(location: Location, now_ms: int) -> int | None:
    """Return the newest time up to now, found by the days that the table is partitioned by."""
    days = asked(location, tables.ANNOUNCEMENTS, f"SELECT DISTINCT day FROM {RELATION}")  # noqa: S608
    for day in sorted((f"DATE '{row['day']}'" for row in days), reverse=True):
        wanted = f"day = {day} AND {_MS} <= {now_ms}"
        sql = f"SELECT max({_MS}) AS ms FROM {RELATION} WHERE {wanted}"  # noqa: S608 - numbers
        [newest] = asked(location, tables.ANNOUNCEMENTS, sql)
        if newest["ms"] is not None:
            return int(newest["ms"])
    return None


def _day(time_ms: int) -> str:
    return f"DATE '{datetime.fromtimestamp(time_ms / 1000, UTC).date()}'"
