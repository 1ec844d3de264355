"""The console beside an identity provider, and a browser at its form."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.harness.console import ConsoleSite, console_site, queue
from tests.harness.identity_provider import SECRET

SETTINGS: dict[str, Any] = {
    "jwt_audience": "packhorse",
    "jwt_name_claim": "preferred_username",
    "jwt_scopes_claim": "groups",
    "jwt_scopes": {
        "annas": ["queues:read", "distribute"],
        "bens": ["content:read"],
        "rosas": ["queues:read"],
    },
    "oidc_client_id": "console",
    "oidc_client_secret": SECRET,
    "oidc_parameters": {"resource": "urn:packhorse"},
}


@contextmanager
def provided(issuer: str, jwks_url: str) -> Iterator[ConsoleSite]:
    with console_site(jwt_issuer=issuer, jwks_url=jwks_url, **SETTINGS) as served:
        served.publisher.shows(queue("sub1"))
        yield served


@contextmanager
def browser() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=120) as opened:
        yield opened


def begun(opened: httpx.Client, site: ConsoleSite, wanted: str = "/pages/overview?find=sub") -> str:
    """Follow the link of the form, and return where it leads."""
    link = f"{site.url}/pages/sign-in/provider"
    return opened.get(link, params={"next": wanted}).headers["location"]
