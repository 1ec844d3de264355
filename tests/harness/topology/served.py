"""A scripted topology service on a real socket, in a thread of the test's process."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from packhorse.runtime.connection import BoundedProtocol
from packhorse.runtime.lifecycle import Lifecycle
from tests.harness.topology.scripted import Scripted
from tests.harness.waiting import eventually


class Served:
    """Its address, and the way to end it as SIGTERM does."""

    def __init__(self, made: Scripted, listener: socket.socket | None = None) -> None:
        self._app = made.service.app
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        # asyncio sets it where it listens by itself; without it each answer is 40 ms late.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                http=BoundedProtocol,
                ws="none",
                log_config=None,
                timeout_graceful_shutdown=10,
            )
        )
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started, what="the server")

    def end(self, timeout: float = 120.0) -> bool:
        """End it, and return whether it did in time."""
        if not self._thread.is_alive():
            return True
        self._loop.call_soon_threadsafe(self._app.state.stopping.set)
        self._server.should_exit = True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve([self._listener])

        asyncio.run(serve())


@contextmanager
def served(made: Scripted) -> Iterator[Served]:
    """Serve it, with its components."""
    with Lifecycle(made.service.components):
        site = Served(made)
        try:
            made.until_current()
            yield site
        finally:
            site.end()
