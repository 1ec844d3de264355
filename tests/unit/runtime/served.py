"""A program for `test_serve`: `python -m tests.unit.runtime.served MODE`."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from packhorse.errors import Permanent, Transient
from packhorse.runtime import connection, logs, serve
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.runtime.http import ServiceDescription, create_app
from packhorse.runtime.lifecycle import Worker
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.startup import plain_refusals

DIE = threading.Event()


class Announced:
    """A component that says on standard error what happens to it."""

    def start(self) -> None:
        if sys.argv[1] == "transient":
            raise Transient("the database is away")
        if sys.argv[1] == "permanent":
            raise Permanent("the topic has two partitions")
        sys.stderr.write("component started\n")

    def stop(self, timeout: float) -> None:
        sys.stderr.write("component stopped\n")
        if sys.argv[1] == "stubborn":
            threading.Event().wait()


class Signalling(logging.Handler):
    """Ends the program when the loop runs and uvicorn is about to start."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Started server process"):
            os.kill(os.getpid(), signal.SIGTERM)


def mortal(stopping: threading.Event) -> None:
    while not stopping.wait(0.01):
        if DIE.is_set():
            raise RuntimeError("poisoned")


def create() -> FastAPI:
    app = create_app(ServiceDescription("t", "t"), Authenticator.off(), Readiness({}))
    app.add_api_route("/stream", lambda: StreamingResponse(fire_times(app)))
    app.add_api_route("/flood", lambda: StreamingResponse(flood()))
    app.add_api_route("/die", DIE.set, methods=["POST"])
    add_held_requests(app)
    return app


def add_held_requests(app: FastAPI) -> None:
    requested, released = asyncio.Event(), asyncio.Event()

    @app.get("/held")
    async def held() -> str:
        requested.set()
        await released.wait()
        return "done"

    @app.get("/held-thread")
    async def held_thread() -> None:
        await asyncio.to_thread(hold_thread)

    @app.get("/release-at-stop")
    async def release_at_stop() -> str:
        await requested.wait()
        asyncio.get_running_loop().create_task(release())
        return "ok"

    async def release() -> None:
        await app.state.stopping.wait()
        await asyncio.sleep(0.3)
        released.set()


def hold_thread() -> None:
    sys.stderr.write("thread held\n")
    threading.Event().wait()


async def fire_times(app: FastAPI) -> AsyncIterator[str]:
    yield "first\n"
    if sys.argv[1] == "deaf":
        await asyncio.Event().wait()
    await app.state.stopping.wait()
    yield "last\n"


async def flood() -> AsyncIterator[bytes]:
    try:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)
    finally:
        sys.stderr.write("flood ended\n")


if __name__ == "__main__":
    logs.configure()
    if sys.argv[1] == "signalled":
        logging.getLogger("uvicorn.error").addHandler(Signalling())
    if sys.argv[1] == "impatient with readers":
        connection.STALL_TIMEOUT_S = 0.2
    if sys.argv[1] == "impatient with heads":
        connection.HEAD_TIMEOUT_S = 0.2
    with plain_refusals():
        if sys.argv[1] == "preparing":
            serve.configured(ProcessConfiguration)
            sys.stderr.write("preparing\n")
            threading.Event().wait()
        serve.run_service(
            create(),
            ProcessConfiguration(),
            [Announced(), Worker("mortal", mortal)],
            grace_s=2 if sys.argv[1] == "deaf" else 120,
        )
