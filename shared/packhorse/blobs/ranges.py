"""One byte range of a request, as RFC 9110 has it."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(Exception):
    """The range begins behind the end."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """From `start` up to, not including, `end`."""

    start: int
    end: int


def parse_range(header: str | None, length: int) -> ByteRange | None:
    """Return the wanted part of `length` bytes, or None for the whole.

    Several ranges, other units and nonsense count as no range, as the RFC allows. Raises
    `RangeNotSatisfiable`.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, length - int(last)), length
    else:
        start, end = int(first), min(length, int(last) + 1) if last else length
        if last and int(last) < start:
            return None
    if start >= end:
        raise RangeNotSatisfiable
    return ByteRange(start, end)
