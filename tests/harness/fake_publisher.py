"""A publisher that keeps the contract of producers and stored packages, with faults on demand."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.harness.answering import serving


class FakePublisher(ThreadingHTTPServer):
    """Accepts each sequence of a producer once. `faults` are what the next appends meet."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.epochs: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.packages: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.tokens: set[str] = set()
        self.requested: Callable[[], None] = lambda: None
        """Called before a question is answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def register(self, name: str) -> dict[str, Any]:
        self.epochs[name] = self.epochs.get(name, 0) + 1
        return {"name": name, "epoch": self.epochs[name], "last_sequence": self.last.get(name)}

    def append(self, body: dict[str, Any]) -> tuple[int, str]:
        """Return status and problem; an append that was accepted before is not kept again."""
        producer = body["producer"]
        name, sequence = producer["name"], producer["sequence"]
        if producer["epoch"] != self.epochs[name]:
            return 409, "producer-fenced"
        if sequence > self.last.get(name, -1):
            self.last[name] = sequence
            self.packages.append(body)
        return 202, ""


_FAULTS = {
    "stale": (409, "stale-package"),
    "missing": (404, "stored-package-missing"),
    "used": (409, "package-id-used"),
    "full": (429, "queue-full"),
    "away": (503, "unavailable"),
    "forbidden": (403, "forbidden"),
}


class _Handler(BaseHTTPRequestHandler):
    server: FakePublisher
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requested()
        name = self.path.rpartition("/")[2]
        if name in self.server.epochs:
            self._answer(200, {"name": name, "last_sequence": self.server.last.get(name)})
        else:
            self._answer(404, {"type": "/problems/unknown-producer", "title": "no", "status": 404})

    def do_PUT(self) -> None:
        self.server.tokens.add(self.headers.get("Authorization", ""))
        self._answer(200, self.server.register(self.path.rpartition("/")[2]))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault == "unanswered":  # accepted, and nobody hears of it
            self.server.append(body)
            self.close_connection = True
            return
        status, kind = _FAULTS[fault] if fault else self.server.append(body)
        if status == 202:
            self._answer(202, {"package_id": body["package_id"], "repeated": False})
        else:
            self._answer(status, {"type": f"/problems/{kind}", "title": kind, "status": status})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if status in (429, 503):
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def fake_publisher() -> Iterator[FakePublisher]:
    """Run one as long as the block lasts."""
    with FakePublisher() as server, serving(server):
        yield server
