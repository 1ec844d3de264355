"""Which time counts, and which hour it is in; all in UTC, whatever the session's time zone.

The journal's own time of a record is the clock that decides (R28). What a sender says of an
earlier moment counts if it can be true: not after its record's time, and at most `BELIEVED_MS`
before. Anything else (0, another century, a clock that is ahead) becomes the record's time.
"""

from datetime import UTC, date, datetime

from pyspark.sql import Column
from pyspark.sql import functions as f

HOUR_MS = 3_600_000
BELIEVED_MS = 7 * 24 * HOUR_MS
"""The time in a record that is sent later than that after it is not used."""


def midnight(day: date) -> datetime:
    """Return the beginning of a day, in UTC."""
    return datetime.combine(day, datetime.min.time(), UTC)


def hour_of(moment_ms: Column) -> Column:
    """Return the beginning of the hour, in UTC, as a timestamp."""
    return f.timestamp_millis(f.floor(moment_ms / f.lit(HOUR_MS)).cast("long") * f.lit(HOUR_MS))


def is_from(since_ms: int, column: str = "hour") -> Column:
    """Return the condition that a row, by its `day` and a timestamp of that day, is not before."""
    day = datetime.fromtimestamp(since_ms / 1000, UTC).date()
    return (f.col("day") >= f.lit(day)) & (f.col(column) >= f.timestamp_millis(f.lit(since_ms)))


def day_of(hour: Column) -> Column:
    """Return the day in UTC of a timestamp."""
    days = f.floor(f.unix_millis(hour) / f.lit(24 * HOUR_MS)).cast("int")
    return f.date_from_unix_date(days)


def believed(said_ms: Column, record_ms: Column) -> Column:
    """Return what a sender said if it can be true, else its record's time."""
    can_be = said_ms.between(record_ms - f.lit(BELIEVED_MS), record_ms) & (said_ms > 0)
    return f.when(can_be, said_ms).otherwise(record_ms)
