"""uvicorn's HTTP protocol with what it lacks: bounds on a request's head and on connections."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from packhorse.runtime.problems import MEDIA_TYPE, generic_kind

MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 120.0
"""How long a client may leave an answer unread once the connection's buffer is full."""

MAX_CONNECTIONS = 900


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers are too long or too slow.

    The parser alone keeps any amount of them, and waits for them for ever. Also closes one whose
    client does not read the answer.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = True
        self._request_ended = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or close it when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._head_came()
        super().connection_lost(exc)  # resumes writing

    def pause_writing(self) -> None:
        """Give the client a while to read on."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the watch on the client."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse, and count while the head is incomplete."""
        self._request_ended = False
        super().data_received(data)
        if self.transport.is_closing() or not self._in_head or self._request_ended:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
        elif self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """Stop the watch on the head."""
        self._in_head = False
        self._head_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Watch the next head, from its first byte on."""
        super().on_message_complete()
        self._in_head, self._head_bytes, self._request_ended = True, 0, True

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the form of every other error."""
        self._refuse(400, msg)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, 408)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, detail: str = "") -> None:
        kind = generic_kind(status)
        body = {"type": kind.type, "title": kind.title, "status": status, "detail": detail}
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
