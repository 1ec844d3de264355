"""Moments in requests, options and answers: RFC 3339, with a time zone."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII
)
_EXAMPLE = "2026-12-24T18:00:00Z"
_LAST_MS = 253_402_300_799_000


def moment_of(text: object) -> datetime:
    """Return what a text says, in UTC; numbers, which some take for seconds, are none.

    Raises `ValueError` for what is no RFC 3339, and outside of the years 1971 to 8999.
    """
    found = None
    if isinstance(text, str) and _RFC_3339.fullmatch(text):
        try:
            found = datetime.fromisoformat(text.upper()).astimezone(UTC)
        except (ValueError, OverflowError):  # no such day or hour, or before the year 1
            found = None
    if found is None:
        zoned = "a moment is a date and time with a time zone (RFC 3339)"
        raise ValueError(f"{zoned}, such as {_EXAMPLE}")
    if not 1970 < found.year < 9000:
        raise ValueError("a moment is in the years 1971 to 8999")
    return found


Moment = Annotated[datetime, BeforeValidator(moment_of)]


def time_of(ms: int) -> datetime | None:
    """Return a time in UTC, or None for 0 and for what is no time."""
    return datetime.fromtimestamp(ms / 1000, UTC) if 0 < ms <= _LAST_MS else None
