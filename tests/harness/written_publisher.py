"""A publisher whose answers a test writes, and which remembers what it was asked."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.harness.answering import answering

AT = "2026-01-01T12:00:00Z"


def entry(offset: int, path: str = "/site/news", **more: Any) -> dict[str, Any]:
    """Return a package that waits."""
    shown = {
        "package_id": f"p{offset}",
        "offset": offset,
        "action": "ADD",
        "paths": [path],
        "deep_paths": [],
        "range_from": "",
        "range_to": "",
        "user": "editor",
        "size": 2_048,
        "time": AT,
    }
    return {**shown, **more}


def announced(subscriber: str, state: str = "IDLE", **more: Any) -> dict[str, Any]:
    """Return a subscriber as the publisher shows it."""
    shown = {
        "subscriber": subscriber,
        "instance": "5130831875e865e2",
        "state": state,
        "offset": 40,
        "settled_offset": 40,
        "incomplete": False,
        "started_offset": -1,
        "behind": 0,
        "behind_at_least": 0,
        "behind_at_most": 0,
        "lag_seconds": None,
        "attempts": 0,
        "last_error": "",
        "next_attempt_at": None,
        "blocked_since": None,
        "editable": True,
        "max_retries": -1,
        "endpoint": "http://sub1:8080",
        "include": [],
        "exclude": [],
        "map_paths": {},
        "exclude_properties": [],
        "last_seen": AT,
    }
    return {**shown, **more}


class Pages(deque[Any]):
    """Answers of a list, page after page."""


class Held(bytes):
    """A stream of events that stays open until its reader goes."""


@dataclass
class WrittenPublisher:
    """`answers` are by method and path; a pair says the status too, bytes are a stream of events.

    A triple says headers as well; `Pages` are answered one after the other, and a function is
    given the query.

    `requested` is what came; `meanwhile` happens once, before the next answer. Clients look
    whether it lives when it has been silent for a second: `looks` counts that.
    """

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    requested: list[tuple[str, str, str | None, Any]] = field(default_factory=list)
    traces: list[tuple[str, str]] = field(default_factory=list)
    """Paths, and the trace of each request that was a part of one."""
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    looks: int = 0
    held: set[object] = field(default_factory=set)
    """Streams that are open now."""

    def forget(self) -> None:
        """Have no answers, and nothing that was asked."""
        self.answers.clear()
        self.requested.clear()

    def shows(self, *queues: Mapping[str, Any]) -> None:
        """Show these queues, each with a package for each of its length."""
        self.answers["GET /queues"] = {"agent": "main", "queues": [*queues]}
        for one in queues:
            entries = [entry(41 + number) for number in range(one["length"] or 0)]
            page = {**one, "agent": "main", "entries": entries, "next": None}
            self.answers[f"GET /queues/{one['subscriber']}"] = page
            about = announced(one["subscriber"], one["state"])
            self.answers.setdefault(f"GET /subscribers/{one['subscriber']}", about)

    def gave_up(self, subscriber: str, *failures: Mapping[str, Any]) -> None:
        """Show these entries in the error queue of a subscriber."""
        page = {"subscriber": subscriber, "length": len(failures), "entries": [*failures]}
        self.answers[f"GET /queues/{subscriber}/errors"] = {**page, "next": None}

    def send(self, content: bytes, handler: BaseHTTPRequestHandler) -> None:
        """Send the body of an answer."""
        if not isinstance(content, Held):
            handler.wfile.write(content)
            return
        self.held.add(handler)
        with suppress(ConnectionError):
            handler.wfile.write(content)
            handler.rfile.read(1)
        self.held.remove(handler)

    def changes(self) -> list[tuple[str, str, str | None, Any]]:
        """Return the requests that would have changed something."""
        return [one for one in self.requested if one[0] != "GET"]


@contextmanager
def written_publisher() -> Iterator[WrittenPublisher]:
    """Serve what is written, until the block ends."""
    written = WrittenPublisher()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization")
            form = "urlencoded" in self.headers.get("Content-Type", "")
            read = dict(parse_qsl(body.decode())) if form else json.loads(body or "null")
            trace = self.headers.get("traceparent", "").split("-")[1:2]
            if self.path == "/livez":
                written.looks += 1
            else:
                written.traces += [(self.path, one) for one in trace]
                written.requested.append((self.command, self.path, token, read))
                if written.meanwhile:
                    written.meanwhile.pop()()
            address = urlsplit(self.path)
            found = written.answers.get(f"{self.command} {address.path}")
            found = found.popleft() if isinstance(found, Pages) else found
            found = found(dict(parse_qsl(address.query))) if callable(found) else found
            status, document, *more = found if isinstance(found, tuple) else (200, found)
            if found is None:
                status, document = 404, {"type": "/problems/x", "title": "none", "status": 404}
            content = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            missing = isinstance(content, Held)  # a byte, which never comes
            self.send_header("Content-Length", str(len(content) + missing))
            if isinstance(document, bytes):
                self.send_header("Content-Type", "text/event-stream")
            for name, value in (more[0] if more else {}).items():
                self.send_header(name, value)
            self.end_headers()
            written.send(content, self)

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    with answering(Handler) as url:
        written.url = url
        yield written
