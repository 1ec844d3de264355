"""uvicorn's HTTP protocol with what it lacks: bounds on a request's head and on connections.

A request that offers another protocol (`Upgrade`) is read as if it had offered none.
"""

import asyncio
import json
import time
from email.utils import formatdate
from functools import lru_cache
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from packhorse.runtime.open_connections import OpenConnections
from packhorse.runtime.places import SURPLUS
from packhorse.runtime.problems import MEDIA_TYPE, generic_kind

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
MAX_WAITING = 16
"""Requests of a connection that wait for the answer to an earlier one; see `BoundedProtocol`."""
HEAD_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 120.0
"""How long a client may leave an answer unread once the connection's buffer is full."""
KEEP_ALIVE_S = 75
"""How long a connection stays open between two requests: longer than clients and proxies keep it.

httpx keeps an idle one for 5 s, load balancers for 60 s. Were it closed here in the moment that a
request comes, its client would not know whether that was carried out.
"""

_NO_URL = "this is no URL: it begins with /, and what is not ASCII is percent-encoded, ö as %C3%B6"


class _ParsingEnds(Exception):
    """Raised in a callback of the parser, which then reports an error and parses no more."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers are too long or too slow.

    The parser alone keeps any amount of them, and waits for them for ever. So it does with
    trailers, which nobody here reads. Also closes one whose client does not read the answer, or
    sends many more requests before it has it: each takes a hundred times its length in memory.
    """

    def __init__(self, *arguments: Any, among: OpenConnections | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.timeout_keep_alive = KEEP_ALIVE_S
        self._among = OpenConnections() if among is None else among
        self._answered: RequestResponseCycle | None = None
        self._in_head = True
        self._request_ended = False
        self._head_bytes = 0
        self._framing_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or close it when there are too many."""
        super().connection_made(transport)
        if self._among.opened(self, self.client[0] if self.client else ""):
            self._await_head()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and tell the request that is being answered."""
        self._head_came()
        self._among.closed(self)
        if self._answered is not None:  # uvicorn tells the newest, which may wait behind this one
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)  # resumes writing

    def close_silent(self) -> None:
        """Make room for another connection."""
        self._head_came()
        self.transport.close()

    def on_response_complete(self) -> None:
        """Note that nothing is under way, unless the next request waits already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._among.silent(self)

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
        self._framing_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserInvalidURLError:
            self._refuse(400, _NO_URL)
        except httptools.HttpParserError:
            self._refuse(400, "this is no HTTP request")
        if self.transport.is_closing() or self._request_ended:
            return
        if self._in_head:
            self._count_head(len(data))
        elif self._framing_bytes > MAX_HEAD_BYTES:
            self._refuse(431, "the body's chunks and trailers hold too much beside the body")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what follows the body came too late to be one."""
        if not self._in_head:
            return
        if len(self.headers) >= MAX_HEADERS:
            self._refuse(431, f"send {MAX_HEADERS} headers at most")
            raise _ParsingEnds
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body: what is beside it is counted from here on."""
        self._framing_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Stop the watch on the head."""
        if self.parser.should_upgrade():
            return  # the head is parsed again, without the offer
        if len(self.pipeline) >= MAX_WAITING:
            self.transport.close()
            raise _ParsingEnds
        self._in_head, self._framing_bytes = False, 0
        self._head_came()
        cast(dict[str, Any], self.scope)[SURPLUS] = self._among.speaking(self)
        self.server_state.default_headers = _date_header(int(time.time()))
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Watch the next head, from its first byte on."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._in_head, self._head_bytes, self._request_ended = True, 0, True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _parse(self, data: bytes) -> None:
        """Parse; at each request that offers a protocol, go on with what follows its head.

        The parser takes all that follows an offer for the other protocol, the body too.
        """
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            else:
                return
            if self.parser.get_method() == b"CONNECT":
                self._refuse(405)
                return
            self._parse_without_offer()

    def _parse_without_offer(self) -> None:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def _count_head(self, received: int) -> None:
        self._head_bytes += received
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
        elif self._head_timer is None:
            self._await_head()

    def _await_head(self) -> None:
        detail = f"send the request line and headers within {HEAD_TIMEOUT_S:g} s"
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, 408, detail)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, detail: str = "") -> None:
        """Close with an answer, unless it would be read as the one to an earlier request."""
        if self.transport.is_closing():
            return
        earlier = self._answered
        if earlier and not earlier.response_complete and (self._in_head or earlier != self.cycle):
            self.transport.close()
            return
        kind = generic_kind(status)
        body = {"type": kind.type, "title": kind.title, "status": status, "detail": detail}
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status} {kind.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()


@lru_cache(maxsize=1)
def _date_header(second: int) -> list[tuple[bytes, bytes]]:
    """Return `Date` of RFC 9110; uvicorn would wake the processor each second to set it."""
    return [(b"date", formatdate(second, usegmt=True).encode())]
