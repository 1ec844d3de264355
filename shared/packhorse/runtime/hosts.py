"""By which names a service may be called, and from which pages: a browser is a way in for others.

A page of anybody's can send requests to this machine's ports, and let its own name resolve to this
machine. A token keeps it out; without authentication these checks do.
"""

from collections.abc import Collection

from starlette.types import Scope

from packhorse.runtime.configuration import is_loopback
from packhorse.runtime.problems import Problem

_OWN_SITES = ("", "same-origin", "none")


def check_host(scope: Scope, allowed: Collection[str], *, anybody: bool) -> None:
    """Refuse a request by another name; where `anybody` may do all, this machine's names alone do.

    Raises `Problem` 421, or 403 for what another site's page has sent.
    """
    if not allowed and not anybody:
        return
    headers = dict(scope["headers"])
    name = _name(headers.get(b"host", b"").decode("latin-1"))
    if name not in allowed and not (anybody and is_loopback(name)):
        raise Problem(
            421,
            detail=f"this service is not called {name[:100]!r}; "
            "an operator may allow the name with PACKHORSE_ALLOWED_HOSTS",
        )
    if anybody and headers.get(b"sec-fetch-site", b"").decode("latin-1") not in _OWN_SITES:
        raise Problem(403, detail="a page of another site has sent this; turn authentication on")


def _name(host: str) -> str:
    """Return the host without its port, in lower case and without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
