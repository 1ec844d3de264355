"""A TCP proxy that cuts, delays and drops what a server answers, at random and from a seed."""

import asyncio
import enum
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK = 64 * 1024
_LONGEST_DELAY_S = 0.4
_ROUNDS_TO_ACCEPT = 20
"""Of the loop: enough for whoever was accepted at the end to have its task begun."""


class Fate(enum.Enum):
    """What becomes of one connection."""

    PASSED = "passed"
    DELAYED = "answer delayed"
    REFUSED = "cut before the server saw anything"
    CUT_REQUEST = "cut in the middle of the request"
    LOST_ANSWER = "cut after the request, the answer thrown away"
    CUT_ANSWER = "cut in the middle of the answer"
    DROPPED_ANSWER = "answer thrown away, the connection left open"


_FAULTS = [fate for fate in Fate if fate is not Fate.PASSED]


class CuttingProxy:
    """Listens on a port of its own, for one server; every connection has a fate."""

    def __init__(self, target: tuple[str, int], seed: int, faults: float) -> None:
        self._target, self._faults = target, faults
        self._random = random.Random(seed)
        self.fates: Counter[Fate] = Counter()
        self._connections: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._loop: asyncio.AbstractEventLoop
        self.port = 0

    def cut(self) -> None:
        """Let nothing through any more, in either way; connections stay open, and new ones hang."""
        self._is_cut = True

    def heal(self) -> None:
        """Let new connections through; those that something was lost of are aborted."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._abort_all)

    def _abort_all(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def serve(self, ready: threading.Event, stopping: asyncio.Event) -> None:
        """Serve until it is stopped."""
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stopping.wait()
        server.close()
        for _ in range(_ROUNDS_TO_ACCEPT):  # a task that is cancelled unbegun would close nothing
            await asyncio.sleep(0)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections)

    async def _connected(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        fate = Fate.PASSED
        if self._random.random() < self._faults:
            fate = self._random.choice(_FAULTS)
        self.fates[fate] += 1
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if fate is not Fate.REFUSED:
                await self._forward(fate, client, back)
        except (OSError, asyncio.CancelledError):
            pass  # the server is being killed, the client has gone, or the test is over
        finally:
            self._connections.discard(task)
            back.transport.abort()

    async def _forward(
        self, fate: Fate, client: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        server, there = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.ensure_future(self._requests(fate, client, there)),
            asyncio.ensure_future(self._answers(fate, server, back)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.transport.abort()  # before anything that can be cancelled
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(
        self, fate: Fate, client: asyncio.StreamReader, there: asyncio.StreamWriter
    ) -> None:
        while data := await client.read(_CHUNK):
            if self._is_cut:
                continue
            if fate is Fate.CUT_REQUEST:
                there.write(data[: self._random.randrange(len(data))])
                await there.drain()
                return
            there.write(data)
            await there.drain()

    async def _answers(
        self, fate: Fate, server: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        while data := await server.read(_CHUNK):
            if self._is_cut:
                continue
            if fate is Fate.LOST_ANSWER:
                return
            if fate is Fate.CUT_ANSWER:
                back.write(data[: self._random.randrange(len(data))])
                await back.drain()
                return
            if fate is Fate.DROPPED_ANSWER:
                continue
            if fate is Fate.DELAYED:
                await asyncio.sleep(self._random.uniform(0, _LONGEST_DELAY_S))
            back.write(data)
            await back.drain()


class FarProxy(CuttingProxy):
    """Lets everything through, `delay_s` later in each way."""

    def __init__(self, target: tuple[str, int], delay_s: float) -> None:
        super().__init__(target, seed=0, faults=0.0)
        self._delay_s = delay_s

    async def _forward(
        self, fate: Fate, client: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        await asyncio.sleep(2 * self._delay_s)  # the handshake of TCP
        server, there = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(self._passed(client, there), self._passed(server, back))
        finally:
            there.transport.abort()

    async def _passed(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(_CHUNK):
            loop.call_later(self._delay_s, target.write, data)
        await asyncio.sleep(self._delay_s)
        target.close()


@contextmanager
def cutting_proxy(
    host: str, port: int, *, seed: int, faults: float = 0.3
) -> Iterator[CuttingProxy]:
    """Run a proxy in a thread; `faults` is the share of connections that meet one."""
    with serving(CuttingProxy((host, port), seed, faults)) as proxy:
        yield proxy


@contextmanager
def serving(proxy: CuttingProxy) -> Iterator[CuttingProxy]:
    """Run a proxy in a thread."""
    ready = threading.Event()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stopping = asyncio.Event()
        stop.append((asyncio.get_running_loop(), stopping))
        await proxy.serve(ready, stopping)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="cutting-proxy")
    thread.start()
    try:
        assert ready.wait(120)
        yield proxy
    finally:
        loop, stopping = stop[0]
        loop.call_soon_threadsafe(stopping.set)
        thread.join(120)
