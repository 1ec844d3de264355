"""Cursors: where the next page begins, opaque to clients."""

import base64
import binascii

from packhorse.runtime.problems import Problem

_PREFIX = b"o"


def write_cursor(offset: int) -> str:
    """Return the cursor of a page that begins behind `offset`."""
    return base64.urlsafe_b64encode(_PREFIX + str(offset).encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> int:
    """Return the offset that the page begins behind, -1 without a cursor. Raises `Problem` 422."""
    if cursor is None:
        return -1
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        text = b""
    digits = text[1:]
    if text[:1] != _PREFIX or not digits.isdigit() or len(digits) > 18:
        wrong = {"pointer": "query/cursor", "detail": "no cursor of ours; begin without one"}
        raise Problem(422, detail="the cursor is not one that this service gave", errors=[wrong])
    return int(digits)
