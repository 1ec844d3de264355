"""A program for `test_floods`: `python -m tests.unit.runtime.flooded TOKEN_FILE`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request

from packhorse.runtime import connection, logs, serve
from packhorse.runtime.auth import Authenticator, Principal, require
from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.token_file import TokenFile
from packhorse.runtime.validation import StrictBody, StrictRoute
from packhorse.runtime.waiting import waited

router = APIRouter(route_class=StrictRoute)


class Text(StrictBody):
    text: str


@router.put("/texts")
async def put_text(body: Text, _caller: Annotated[Principal, Depends(require("admin"))]) -> int:
    return len(body.text)


@router.get("/waits")
async def wait(
    request: Request, _caller: Annotated[Principal, Depends(require("queues:read"))]
) -> bool:
    return await waited(request, asyncio.Event().wait)


def create() -> FastAPI:
    authenticator = Authenticator(TokenFile(Path(sys.argv[1])))
    app = create_app(ServiceDescription("t", "t"), authenticator, Readiness({}))
    add_routes(app, router)
    return app


if __name__ == "__main__":
    logs.configure()
    # A silent connection is closed to make room, and for nothing else while the tests connect.
    connection.HEAD_TIMEOUT_S = 120
    serve.run_service(create(), ProcessConfiguration())
