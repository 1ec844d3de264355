"""Cursors of lists over HTTP that come page by page: how a place is written, read and refused."""

import base64
import binascii

from packhorse.runtime.problems import Problem


def write_cursor(place: str) -> str:
    """Return the cursor of a page that begins behind `place`, which clients need not understand."""
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the place that a cursor was written for; empty for what is no cursor."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def foreign_cursor() -> Problem:
    """Return what a cursor is answered with that names no place of the list."""
    wrong = {"pointer": "query/cursor", "detail": "no cursor of ours; begin without one"}
    return Problem(422, detail="the cursor is not one that this service gave", errors=[wrong])
