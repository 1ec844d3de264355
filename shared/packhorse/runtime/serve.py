"""Running a program: its components, its HTTP service, its signals, its exit code."""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import NoReturn

import typer
import uvicorn
from fastapi import FastAPI

from packhorse.runtime import logs
from packhorse.runtime.configuration import ProcessConfiguration, SettingsT, loaded
from packhorse.runtime.connection import STALL_TIMEOUT_S, BoundedProtocol
from packhorse.runtime.lifecycle import Component, Lifecycle
from packhorse.runtime.limits import limits_of
from packhorse.runtime.open_connections import OpenConnections
from packhorse.runtime.startup import plain_refusals
from packhorse.runtime.threads import LoopThreads

logger = logging.getLogger(__name__)

GRACE_S = 10
"""How long requests under way may take once the process was asked to end."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_S = 5.0
"""How often a program looks whether one of its components has died."""
_BACKLOG = 512
_YOUNG_OBJECTS = 10_000
"""More objects than before start a collection; Python's 700 are a few requests' or records'."""
_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""How many threads do what blocks, for asyncio; as many as its own executor has."""


def run_program(serve: Callable[[], None]) -> None:
    """Run a program whose only command is to serve; its docstring is what `--help` shows.

    An error that it expects becomes one line and an exit code.
    """
    commands = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    commands.command()(serve)
    with plain_refusals():
        commands()


def configured(kind: type[SettingsT]) -> SettingsT:
    """Return a program's settings by the environment, by which it logs from now on.

    A signal ends the program from now on, as process 1 of a container too. Raises
    `InvalidConfiguration`.
    """
    settings = loaded(kind)
    logs.configure(settings.log_format, settings.log_level)
    _at_signal(_end)
    return settings


def run_service(
    app: FastAPI,
    settings: ProcessConfiguration,
    components: Sequence[Component] = (),
    *,
    port: int | None = None,
    grace_s: int = GRACE_S,
) -> None:
    """Start the components, serve until SIGTERM or SIGINT, stop the components.

    Serves where the settings say, within the limits that they set, and prints one line of JSON on
    standard output once requests are taken. Port 0 takes a free one. Raises `SystemExit(1)` when
    a component died, so that a supervisor starts the program again.
    """
    gc.freeze()  # what was imported stays: no collection has to look through it
    gc.set_threshold(_YOUNG_OBJECTS)
    at = settings.port if port is None else port
    _at_signal(_end)
    with _listening(settings.host, at) as listener:
        app.state.limits = limits_of(settings)
        with Lifecycle(components) as lifecycle:
            app.state.readiness.add("components", lifecycle.check)
            server = _Server(app, listener, lifecycle, grace_s)
            _at_signal(server.keep_signal)
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(server.serve([listener]))
            _at_signal(_end)  # the second one, for the loop has forgotten its own
        logger.info("stopped")
    if server.died:
        raise SystemExit(1)


class _Server(uvicorn.Server):
    """uvicorn with our signals, our ready line, and an eye on the components."""

    def __init__(
        self, app: FastAPI, listener: socket.socket, lifecycle: Lifecycle, grace_s: int
    ) -> None:
        among = OpenConnections(app.state.limits.connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedProtocol, among=among),  # type: ignore[arg-type]
                loop="uvloop",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=grace_s,
            )
        )
        self._app, self._listener, self._lifecycle = app, listener, lifecycle
        self.died = self._signalled = False
        self._ending = asyncio.Event()

    def keep_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Keep a signal for `startup`; an exception would break a loop that has just begun."""
        self._signalled = True

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        """Leave signals to `startup`: uvicorn would raise them again and so end by signal."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and say so."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(LoopThreads("blocking", _THREADS))
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        if self._signalled:
            self.should_exit = True
            self._app.state.stopping.set()
        await super().startup(sockets)
        ready = {"event": "ready", "url": _url(self._listener), "pid": os.getpid()}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        logger.info("ready", extra={"url": ready["url"]})

    async def main_loop(self) -> None:
        """Wait for the end; uvicorn's own would wake the processor ten times a second."""
        while not self.should_exit:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._ending.wait()
            except TimeoutError:
                self._check_components()

    def _stop(self) -> None:
        # The second signal waits for nobody; of a kept one the loop may tell once more.
        self.force_exit = self.should_exit and not self._signalled
        self._signalled, self.should_exit = False, True
        self._app.state.stopping.set()
        self._ending.set()

    def _check_components(self) -> None:
        try:
            self._lifecycle.check()
        except RuntimeError:
            logger.exception("the process ends because a component has died")
            self.died = True
            self._stop()


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
            milliseconds = int(STALL_TIMEOUT_S * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        try:
            listener.bind(address)
        except OSError as error:
            sys.stderr.write(f"can't listen on {host}:{port}: {error.strerror}\n")
            raise SystemExit(1) from error
        listener.listen(_BACKLOG)
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _at_signal(act: Callable[[int, FrameType | None], None]) -> None:
    for number in _SIGNALS:
        signal.signal(number, act)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Turn a signal that comes while no loop runs into a clean end."""
    raise SystemExit(0)
