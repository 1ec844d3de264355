"""A small app with one route of each kind, and calls to it without a server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import httpx
import psycopg
from fastapi import APIRouter, Depends, FastAPI, Query, Request

from packhorse.errors import Permanent, Transient
from packhorse.runtime.auth import Authenticator, Principal, require
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.limits import DEFAULT_LIMITS, ServiceLimits
from packhorse.runtime.problems import ProblemKind, documented
from packhorse.runtime.readiness import Check, Readiness
from packhorse.runtime.request_body import allow_body
from packhorse.runtime.validation import StrictBody, StrictRoute

MIB = 1024 * 1024
LONG_S = 120.0
"""Longer than any thread of a busy machine stands still."""


class Missing(Permanent):
    """An error that a service adds to the table."""


class Order(StrictBody):
    action: Literal["ADD", "DELETE"]
    paths: list[str]
    count: int = 0


ERRORS: dict[str, Exception] = {
    "transient": Transient("the journal is away; try again"),
    "permanent": Permanent("/a is no path; send another"),
    "missing": Missing("/a is not there"),
    "database": psycopg.OperationalError("password=secret host=db"),
    "bug": RuntimeError("secret"),
}

_NO_CHECKS: dict[str, Check] = {}


def sample_app(
    authenticator: Authenticator | None = None,
    *,
    limits: ServiceLimits = DEFAULT_LIMITS,
    readiness: dict[str, Check] = _NO_CHECKS,
    warnings: dict[str, Check] = _NO_CHECKS,
    **options: Any,
) -> FastAPI:
    app = create_app(
        ServiceDescription(
            *("sample", "for tests"),
            problems={Missing: ProblemKind(404, "missing", "Missing")},
        ),
        authenticator or Authenticator.off(),
        Readiness(readiness, warnings=warnings, timeout_s=LONG_S, warning_s=LONG_S),
        **options,
    )
    app.state.limits = limits
    add_routes(app, _routes())
    return app


def _routes() -> APIRouter:
    router = APIRouter(route_class=StrictRoute)

    @router.post("/orders", status_code=202, responses=documented(503))
    async def place_order(
        order: Order, caller: Annotated[Principal, Depends(require("distribute"))]
    ) -> dict[str, str]:
        return {"caller": caller.name, "first": order.paths[0] if order.paths else ""}

    @router.get("/orders")
    async def list_orders(
        caller: Annotated[Principal, Depends(require("queues:read"))],
        limit: int | None = None,
        tag: Annotated[list[str] | None, Query()] = None,
    ) -> list[str]:
        return list(caller.roots)

    @router.put("/streams/{name}", dependencies=[Depends(allow_body(8 * MIB))])
    async def stream_in(name: str, request: Request) -> dict[str, int]:
        return {"length": sum([len(chunk) async for chunk in request.stream()])}

    @router.get("/errors/{kind}")
    async def fail(kind: str) -> None:
        raise ERRORS[kind]

    return router


def call(app: FastAPI, method: str, url: str, **options: Any) -> httpx.Response:
    """Make one request; the answer has been read."""

    async def calling() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, url, **options)

    return asyncio.run(calling())


def send_json(app: FastAPI, body: bytes, url: str = "/orders") -> httpx.Response:
    headers = {"content-type": "application/json"}
    return call(app, "POST", url, content=body, headers=headers)


class Endless:
    """A body that never ends, and counts what was taken of it."""

    def __init__(self) -> None:
        self.taken = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += 64 * 1024
            yield b" " * 64 * 1024
