"""What the bounds on a request's head must leave alone: its body, and the time of its answer."""

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from packhorse.runtime import connection
from packhorse.runtime.connection import BoundedProtocol
from tests.unit.runtime.serving import received_after, serving

_HEADERS: list[tuple[bytes, bytes]] = []
"""Of the last request, as they are when its body has come."""


async def _app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    body = 0
    while True:
        message = await receive()
        body += len(message["body"])
        if not message["more_body"]:
            break
    _HEADERS[:] = scope["headers"]
    if scope["path"] == "/slow":
        await _pass_time(connection.HEAD_TIMEOUT_S + connection.KEEP_ALIVE_S)
    content = str(body).encode()
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _pass_time(seconds: float) -> None:
    """Let everything happen that the loop was to call within so many seconds."""
    loop = asyncio.get_running_loop()
    later = loop.time() + seconds
    with mock.patch.object(loop, "time", return_value=later):
        for _ in range(3):
            await asyncio.sleep(0)


async def _exchange(*requests: bytes, until_closed: bool = False) -> list[bytes]:
    """Send requests on one connection, each after the answer to the one before."""
    kept_s = 600  # by uvicorn; here KEEP_ALIVE_S counts
    config = uvicorn.Config(_app, log_config=None, lifespan="off", timeout_keep_alive=kept_s)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: BoundedProtocol(config=config, server_state=ServerState(), app_state={}),
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    answers = []
    for request in requests:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        answers.append(head.partition(b"\r\n")[0] + b" " + await reader.readexactly(length))
    if until_closed:
        answers.append(await asyncio.wait_for(reader.read(), 120))
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    return answers


def _post(path: str, length: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + b"x" * length


def test_a_long_body_is_no_long_head() -> None:
    length = 3 * connection.MAX_HEAD_BYTES
    answers = asyncio.run(_exchange(_post("/", length), _post("/", length)))
    assert answers == [b"HTTP/1.1 200 OK %d" % length] * 2


def test_an_answer_may_take_longer_than_a_head_and_than_a_pause() -> None:
    answers = asyncio.run(_exchange(_post("/slow", 1), _post("/slow", 1)))
    assert answers == [b"HTTP/1.1 200 OK 1"] * 2


_CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
_FIELD = b"x: " + b"a" * 1000 + b"\r\n"


@pytest.mark.parametrize(
    "endless",
    [b"0\r\n" + 80 * _FIELD, b"0\r\nx: " + b"a" * 80_000, b"1;" + b"a" * 80_000],
    ids=["trailers", "a trailer", "a chunk's extension"],
)
def test_what_comes_beside_a_body_is_bounded_as_a_head_is(endless: bytes) -> None:
    """The parser keeps trailers, so that a client without a token could fill the memory."""
    segments = [endless[start : start + 8192] for start in range(0, len(endless), 8192)]
    answer = asyncio.run(_refusal(_CHUNKED, *segments))
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_trailers_are_no_headers_and_small_ones_are_passed_over() -> None:
    request = _CHUNKED + b"2\r\nab\r\n0\r\nx-late: 1\r\n\r\n"
    assert asyncio.run(_exchange(request, request)) == [b"HTTP/1.1 200 OK 2"] * 2
    assert b"x-late" not in [name for name, _ in _HEADERS]
    assert _HEADERS


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("GET /content/größe HTTP/1.1\r\n\r\n", "percent-encoded"),
        ("GET content HTTP/1.1\r\n\r\n", "begins with /"),
        ("\x16\x03\x01", "this is no HTTP request"),
    ],
)
def test_what_can_t_be_read_is_refused_with_what_is_wrong(head: str, said: str) -> None:
    answer = asyncio.run(_refusal(head.encode()))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert said in answer.decode()


def test_who_is_slow_with_the_head_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.5)

    async def asked() -> bytes:
        async with serving(_app) as address:
            return await received_after(address, b"GET / HTTP/1.1\r\n")

    answer = asyncio.run(asked())
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request line and headers" in answer
    assert b"body" not in answer


async def _refusal(*segments: bytes) -> bytes:
    """Send segments, then end; return what the server says."""
    async with serving(_app) as address:
        reader, writer = await asyncio.open_connection(*address)
        try:
            for segment in segments:
                writer.write(segment)
                await asyncio.sleep(0)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(65536), 120)
        finally:
            writer.close()


def test_an_idle_connection_outlasts_the_clients_and_proxies_that_keep_it() -> None:
    assert connection.KEEP_ALIVE_S > 60  # AWS's load balancers and nginx keep theirs for 60 s


def test_an_idle_connection_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEEP_ALIVE_S", 0.05)
    answers = asyncio.run(_exchange(_post("/", 1), until_closed=True))
    assert answers == [b"HTTP/1.1 200 OK 1", b""]


def test_an_answer_says_when_it_was_given() -> None:
    async def asked() -> bytes:
        async with serving(_app) as address:
            return await received_after(address, _post("/", 1))

    before = int(time.time())
    dates = re.findall(rb"\r\ndate: ([^\r]+)\r\n", asyncio.run(asked()))
    [given] = [parsedate_to_datetime(one.decode()).timestamp() for one in dates]
    assert before <= given <= time.time()


_ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def test_few_requests_may_wait_behind_an_answer() -> None:
    async def asked() -> bytes:
        async with serving(_app) as address:
            return await received_after(address, 8 * _ASK, answers=8)

    assert asyncio.run(asked()).count(b"HTTP/1.1 200 ") == 8


class _Held:
    """Answers no request before its client has gone, and counts those that it has begun."""

    def __init__(self) -> None:
        self.begun, self.has_begun, self.has_ended = 0, asyncio.Event(), asyncio.Event()

    async def __call__(self, _scope: Any, receive: Callable[[], Any], _send: Any) -> None:
        self.begun += 1
        self.has_begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.has_ended.set()


def test_who_lets_very_many_requests_wait_is_cut_off() -> None:
    """A small request takes a hundred times its length in memory while it waits."""

    async def asked() -> int:
        held = _Held()
        async with serving(held) as address:
            assert await received_after(address, 1000 * _ASK) == b""
            await asyncio.wait_for(held.has_ended.wait(), 120)
        return held.begun

    assert asyncio.run(asked()) == 1


def test_who_has_gone_is_noticed_though_another_request_of_his_waits() -> None:
    """Else the answer is sent on, to nobody: each has a traceback in the log."""

    async def asked() -> None:
        held = _Held()
        async with serving(held) as address:
            _, writer = await asyncio.open_connection(*address)
            writer.write(2 * _ASK)
            await writer.drain()
            await asyncio.wait_for(held.has_begun.wait(), 120)
            writer.transport.abort()
            await asyncio.wait_for(held.has_ended.wait(), 120)

    asyncio.run(asked())


@pytest.mark.parametrize("more", [0, 1])
def test_headers_are_counted_too(more: int) -> None:
    """Short ones take 25 times their length in memory."""
    fields = (connection.MAX_HEADERS - 1 + more) * b"a:\r\n"
    answer = asyncio.run(_refusal(b"GET / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n"))
    assert answer.startswith(b"HTTP/1.1 431 " if more else b"HTTP/1.1 200 ")


@pytest.mark.parametrize("second", [b"no request\r\n\r\n", _CHUNKED + b"no chunk\r\n"])
def test_what_is_refused_behind_a_request_under_way_is_not_read_as_its_answer(
    second: bytes,
) -> None:
    async def asked() -> bytes:
        async with serving(_Held()) as address:
            return await received_after(address, _ASK + second)

    assert asyncio.run(asked()) == b""


def test_what_is_refused_after_an_answer_is_told_so() -> None:
    first, second = asyncio.run(_exchange(_ASK, b"no request\r\n\r\n"))
    assert first == b"HTTP/1.1 200 OK 0"
    assert second.startswith(b"HTTP/1.1 400 ")
