"""A service that gives prepared answers, refusals and cuts, whoever asks it over HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.harness.answering import answering

Answer = tuple[int, dict[str, str], str]
CUT: Answer = (0, {}, "")


def problem(status: int, kind: str, retry_after: str = "", **more: Any) -> Answer:
    document = {"type": f"/problems/{kind}", "title": kind, "status": status, **more}
    headers = {"Content-Type": "application/problem+json"}
    if retry_after:
        headers["Retry-After"] = retry_after
    return status, headers, json.dumps(document, ensure_ascii=False)


def fine(status: int = 200, **document: Any) -> Answer:
    """An answer of a later version, which has a field that no client knows."""
    later = {name: _later(value) for name, value in document.items()}
    text = json.dumps({**later, "added": "later"}, ensure_ascii=False)
    return status, {"Content-Type": "application/json"}, text


def _later(value: Any) -> Any:
    if isinstance(value, list):
        return [{**one, "added": "later"} if isinstance(one, dict) else one for one in value]
    return value


def halting(text: str, **headers: str) -> Answer:
    """An answer that begins and does not go on."""
    length = {"Content-Length": str(len(text) + 100)}
    return 200, {"Content-Type": "application/json", **length, **_OPEN, **headers}, text


def stream(text: str, missing: int = 0, *, silent: bool = False) -> Answer:
    """Server-sent events. `missing` bytes are never sent: the stream is lost, or falls silent."""
    headers = {"Content-Type": "text/event-stream", "Content-Length": str(len(text) + missing)}
    return 200, {**headers, **(_OPEN if silent else {})}, text


@dataclass
class Service:
    """Gives the prepared answers in turn, the last one for ever, and keeps what it was asked."""

    answers: list[Answer] = field(default_factory=list)
    requested: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    url: str = ""

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def headers(self, name: str) -> list[str | None]:
        return [headers.get(name) for _, _, headers, _ in self.requested]


ACCEPTED = fine(
    202,
    id="d1",
    package_id="d1",
    state="ACCEPTED",
    offset=None,
    repeated=False,
    links={"self": "/distributions/d1"},
)
_CLOSE = {"Connection": "close"}
_OPEN = {"Connection": "keep-alive"}
UNANSWERED: Answer = (0, _OPEN, "")


@contextmanager
def played_service() -> Iterator[Service]:
    """Serve until the block ends."""
    played = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            named = {name.title() for name in self.headers}
            headers = {name: ", ".join(self.headers.get_all(name, ())) for name in named}
            requested = json.loads(body) if body else None
            played.requested.append((self.command, self.path, headers, requested))
            status, more, text = played.next()
            self.close_connection = True
            if (status, more) == UNANSWERED[:2]:
                self.rfile.read(1)  # until the client goes
                return
            if not status:  # the request has arrived, and its answer is cut in the middle
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
                return
            self.send_response(status)
            length = {"Content-Length": str(len(text.encode()))}
            for name, value in {**length, **_CLOSE, **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())
            if _OPEN.items() <= more.items():
                self.rfile.read(1)  # until the client goes

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    with answering(Handler) as url:
        played.url = url
        yield played
