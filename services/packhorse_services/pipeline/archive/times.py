"""The time of a record as bronze has it, whatever was said: one that every calendar knows.

Brokers stamp the product's own topics. Where somebody else has made a topic, its senders may say
any time, also one in microseconds, or none at all. Such a record is archived all the same, under
the nearest time that fits: one from before 1970 is then of the oldest day there is, which the next
upkeep may let go, and one from after `LATEST_MS` is of a day that no upkeep reaches.
"""

from collections.abc import Mapping

from packhorse.messaging.api import Record

LATEST_MS = 253_370_764_800_000
"""The beginning of the year 9999. Days and hours end behind it, for which there must be room."""

SAID = "packhorse-said-time-ms"
"""The header, in the archive alone, of a record that said another time than bronze has."""


def plausible_ms(time_ms: int) -> int:
    """Return the time nearest to this one that is from 1970 to `LATEST_MS`."""
    return min(max(time_ms, 0), LATEST_MS)


def plausible(record: Record) -> tuple[int, Mapping[str, bytes]]:
    """Return a record's time as `plausible_ms` has it, and its headers, with what it said."""
    time_ms = plausible_ms(record.time_ms)
    if time_ms == record.time_ms:
        return time_ms, record.headers
    return time_ms, {**record.headers, SAID: str(record.time_ms).encode()}


def same_headers(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> bool:
    """Tell whether two records have the same headers, what they said of their times left out."""
    return {**one, SAID: b""} == {**other, SAID: b""}
