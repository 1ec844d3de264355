"""Cursors of reports: the key of a page's last row, opaque to clients."""

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from packhorse.runtime.problems import Problem
from packhorse_services.pipeline.queries import Value
from packhorse_services.pipeline.reports.schemas import Report

_NUMBERS = frozenset({"hour", "rank"})
_BOUND = 2**40


def write_cursor(values: Sequence[Value]) -> str:
    """Return the cursor of a page that begins behind the row with this key."""
    plain = [int(v.timestamp()) if isinstance(v, datetime) else v for v in values]
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(report: Report, cursor: str) -> list[Value]:
    """Return the key that the page begins behind. Raises `Problem` 422 for no cursor of ours."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not _is_key(report, found):
        wrong = {"pointer": "query/cursor", "detail": "no cursor of ours; begin without one"}
        raise Problem(422, detail="the cursor is not one that this service gave", errors=[wrong])
    return [datetime.fromtimestamp(found[0], UTC), *found[1:]]


def _is_key(report: Report, found: Any) -> bool:
    if not isinstance(found, list) or len(found) != len(report.key):
        return False
    return all(map(_fits, report.key, found))


def _fits(column: str, value: Any) -> bool:
    if column in _NUMBERS:
        return type(value) is int and 0 <= value < _BOUND
    return isinstance(value, str) and value.isprintable()
