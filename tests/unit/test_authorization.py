"""Every operation of every service × {no token, wrong scope, other agent} is refused.

The table is made from the OpenAPI documents, so that a new operation is in it by itself.
"""

import asyncio
import itertools
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.principal import Principal, TokenScope
from tests.harness.openapi import SERVICES

_AGENT = "main"
_PATH_PARAMETER = re.compile(r"{[^}]*}")

Operation = tuple[str, str, str, str]
"""Service, method, path, and the scope that the document names."""


def _operations() -> Iterator[Operation]:
    for service in SERVICES:
        for path, item in app_of(service).openapi()["paths"].items():
            for method, operation in item.items():
                ((scope,),) = [one["HTTPBearer"] for one in operation["security"]]
                yield service, method.upper(), path, scope


class _AnyScopes:
    """Tokens that are lists of scopes, and agents behind a `/`."""

    async def principal(self, token: str) -> Principal | None:
        scopes, _, agents = token.partition("/")
        return Principal(
            "caller",
            frozenset(scopes.split(",")),
            agents=tuple(agents.split(",")) if agents else None,
        )


@cache
def app_of(service: str) -> FastAPI:
    app = SERVICES[service](tempfile.mkdtemp(prefix="packhorse-test-"))
    app.state.authenticator = Authenticator(_AnyScopes())
    return app


def send(service: str, method: str, path: str, token: str | None) -> httpx.Response:
    url = _PATH_PARAMETER.sub("1", path)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app_of(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, url, headers=headers, **_body(method))

    return asyncio.run(asking())


def _body(method: str) -> dict[str, Any]:
    return {"json": {}} if method in ("POST", "PUT", "PATCH") else {}


OPERATIONS = list(_operations())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:3]))
def test_nobody_gets_in_without_a_token(operation: Operation) -> None:
    answer = send(*operation[:3], token=None)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:3]))
def test_all_other_scopes_together_open_nothing(operation: Operation) -> None:
    service, method, path, needed = operation
    others = set(TokenScope) - {TokenScope.ADMIN, TokenScope(needed)}
    answer = send(service, method, path, ",".join(sorted(others)))
    assert answer.status_code == 403
    assert f'scope="{needed}"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS if one[0] == "publisher"],
    ids=lambda one: " ".join(one[:3]),
)
def test_a_token_for_another_agent_opens_nothing(operation: Operation) -> None:
    service, method, path, _ = operation
    answer = send(service, method, path, "admin/bulk,staging")
    assert answer.status_code == 403
    assert _AGENT in answer.json()["detail"]


def test_the_table_holds_every_service_and_every_scope_that_one_asks_for() -> None:
    assert {service for service, *_ in OPERATIONS} == set(SERVICES)
    requested = {scope for *_, scope in OPERATIONS}
    assert requested == set(TokenScope)


def test_the_table_would_notice_an_open_operation() -> None:
    """A checker that can't fail is none: an operation that asks for nothing is let in."""
    app = app_of("publisher")
    before = app.state.authenticator
    app.state.authenticator = Authenticator.off()
    try:
        opened = [
            send(*operation[:3], token=None).status_code
            for operation in itertools.islice(OPERATIONS, 1)
        ]
    finally:
        app.state.authenticator = before
    assert 401 not in opened
