"""Lists over HTTP that come page by page: where the next page is, in the body and in a header."""

from collections.abc import Mapping
from urllib.parse import urlencode


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
