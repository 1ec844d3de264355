"""Every operation of every service, out of the OpenAPI documents, and a way to send one."""

import asyncio
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
from fastapi import FastAPI

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.principal import Principal
from tests.harness.openapi import FOLDER, SERVICES
from tests.harness.yaml_text import parsed

_PATH_PARAMETER = re.compile(r"{[^}]*}")

Operation = tuple[str, str, str, str]
"""Service, method, path, and the scope that the document names."""


def _operations() -> Iterator[tuple[Operation, str]]:
    for service in SERVICES:
        document = parsed((FOLDER / f"{service}.yaml").read_text())  # test_openapi.py compares it
        for path, item in document["paths"].items():
            for method, operation in item.items():
                ((scope,),) = [one["HTTPBearer"] for one in operation["security"]]
                yield (service, method.upper(), path, scope), operation["operationId"]


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


def send(
    service: str, method: str, path: str, token: str | None, *, given: str = "1"
) -> httpx.Response:
    """Send it with `given` as each parameter of its path."""
    url = _PATH_PARAMETER.sub(given, path)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app_of(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, url, headers=headers, **_body(method))

    return asyncio.run(asking())


def _body(method: str) -> dict[str, Any]:
    return {"json": {}} if method in ("POST", "PUT", "PATCH") else {}


OPERATION_IDS = dict(_operations())
OPERATIONS = list(OPERATION_IDS)
