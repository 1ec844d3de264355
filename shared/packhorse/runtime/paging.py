"""Lists over HTTP that come page by page: where the next page is, and the cursors that say so."""

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import urlencode

from packhorse.runtime.problems import Problem


def page_url(path: str, /, **requested: object) -> str:
    """Return the URL of a page: `path`, which is quoted already, and what it is asked with.

    Parameters that are None are left out, the others keep their order; a list is one parameter
    for each of its elements.
    """
    given = {name: value for name, value in requested.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}"


def link_to(following: str | None) -> Mapping[str, str]:
    """Return the header `Link` that names the next page (RFC 8288); no header at the end."""
    return {} if following is None else {"Link": f'<{following}>; rel="next"'}


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
