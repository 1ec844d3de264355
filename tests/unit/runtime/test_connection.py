"""What the bounds on a request's head must leave alone: its body, and the time of its answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from packhorse.runtime import connection
from packhorse.runtime.connection import BoundedProtocol


async def _app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    body = 0
    while True:
        message = await receive()
        body += len(message["body"])
        if not message["more_body"]:
            break
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * connection.HEAD_TIMEOUT_S)
    content = str(body).encode()
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _exchange(*requests: bytes) -> list[bytes]:
    """Send requests on one connection, each after the answer to the one before."""
    config = uvicorn.Config(_app, log_config=None, lifespan="off")
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
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    return answers


def _post(path: str, length: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + b"x" * length


def test_m1_a_long_body_is_no_long_head() -> None:
    length = 3 * connection.MAX_HEAD_BYTES
    answers = asyncio.run(_exchange(_post("/", length), _post("/", length)))
    assert answers == [b"HTTP/1.1 200 OK %d" % length] * 2


def test_m1_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 1.0)
    answers = asyncio.run(_exchange(_post("/slow", 1), _post("/slow", 1)))
    assert answers == [b"HTTP/1.1 200 OK 1"] * 2
