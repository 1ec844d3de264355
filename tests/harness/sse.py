"""A client of server-sent events, in a thread of its own."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent

from tests.harness.waiting import eventually


class EventClient:
    """Follows one stream until it ends or is closed; keeps what came."""

    def __init__(self, url: str, token: str = "", last_id: str = "", **query: str) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if last_id:
            headers["Last-Event-ID"] = last_id
        self._client = httpx.Client(timeout=httpx.Timeout(120, read=300))
        request = self._client.build_request("GET", f"{url}/events", headers=headers, params=query)
        self.response = self._client.send(request, stream=True)
        if self.response.status_code != 200:
            refusal = self.response.read()
            self._client.close()
            raise AssertionError(refusal)
        self._lock = threading.Lock()
        self._blocks: list[ServerSentEvent] = []
        self.clean_end: bool | None = None
        """Whether the server ended the stream as HTTP wants it; None while it lasts."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for block in EventSource(self.response).iter_sse():
                with self._lock:
                    self._blocks.append(block)
            self.clean_end = True
        except (httpx.TransportError, httpx.StreamError, OSError):
            self.clean_end = False

    @property
    def blocks(self) -> list[ServerSentEvent]:
        """All blocks, those without data too."""
        with self._lock:
            return list(self._blocks)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the data of all events, or of those with these names."""
        return [
            json.loads(one.data)
            for one in self.blocks
            if one.data and (not names or one.event in names)
        ]

    @property
    def last_id(self) -> str:
        return eventually(lambda: self.blocks)[-1].id

    def until(self, holds: Callable[["EventClient"], object]) -> "EventClient":
        eventually(lambda: holds(self), what=f"of {self.blocks[-5:]}")
        return self

    def close(self) -> None:
        """Go away, as a client does that was cut off."""
        connection = self.response.extensions["network_stream"].get_extra_info("socket")
        with suppress(OSError):  # the server may have gone first
            connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(120)
        self.response.close()
        self._client.close()
