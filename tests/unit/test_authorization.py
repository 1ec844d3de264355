"""Every operation of every service × {no token, wrong scope, other agent} is refused (M13).

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
from packhorse.runtime.principal import Principal, Scope
from tests.harness.openapi import ROOMS

_AGENT = "main"
_PATH_PARAMETER = re.compile(r"{[^}]*}")

Operation = tuple[str, str, str, str]
"""Room, method, path, and the scope that the document names."""


def _operations() -> Iterator[Operation]:
    for room in ROOMS:
        for path, item in _app(room).openapi()["paths"].items():
            for method, operation in item.items():
                ((scope,),) = [one["HTTPBearer"] for one in operation["security"]]
                yield room, method.upper(), path, scope


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
def _app(room: str) -> FastAPI:
    app = ROOMS[room](tempfile.mkdtemp(prefix="packhorse-test-"))
    app.state.authenticator = Authenticator(_AnyScopes())
    return app


def _ask(room: str, method: str, path: str, token: str | None) -> httpx.Response:
    url = _PATH_PARAMETER.sub("1", path)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(_app(room))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.request(method, url, headers=headers, **_body(method))

    return asyncio.run(asking())


def _body(method: str) -> dict[str, Any]:
    return {"json": {}} if method in ("POST", "PUT", "PATCH") else {}


OPERATIONS = list(_operations())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:3]))
def test_m13_nobody_gets_in_without_a_token(operation: Operation) -> None:
    answer = _ask(*operation[:3], token=None)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: " ".join(one[:3]))
def test_m13_all_other_scopes_together_open_nothing(operation: Operation) -> None:
    room, method, path, needed = operation
    others = set(Scope) - {Scope.ADMIN, Scope(needed)}
    answer = _ask(room, method, path, ",".join(sorted(others)))
    assert answer.status_code == 403
    assert f'scope="{needed}"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS if one[0] == "publisher"],
    ids=lambda one: " ".join(one[:3]),
)
def test_m13_a_token_for_another_agent_opens_nothing(operation: Operation) -> None:
    room, method, path, _ = operation
    answer = _ask(room, method, path, "admin/bulk,staging")
    assert answer.status_code == 403
    assert _AGENT in answer.json()["detail"]


def test_the_table_holds_every_service_and_every_scope_that_one_asks_for() -> None:
    assert {room for room, *_ in OPERATIONS} == set(ROOMS)
    asked = {scope for *_, scope in OPERATIONS}
    assert asked == set(Scope)


def test_the_table_would_notice_an_open_operation() -> None:
    """A checker that can't fail is none: an operation that asks for nothing is let in."""
    app = _app("publisher")
    before = app.state.authenticator
    app.state.authenticator = Authenticator.off()
    try:
        opened = [
            _ask(*operation[:3], token=None).status_code
            for operation in itertools.islice(OPERATIONS, 1)
        ]
    finally:
        app.state.authenticator = before
    assert 401 not in opened
