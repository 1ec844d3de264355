"""A content service of one large binary, which holds none of it and loses every other answer."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.harness.answering import answering

_CHUNK = 64 * 1024
PATTERN = bytes(range(251)) * 2_000
"""What the binary repeats; its length fits no part."""


def pattern(start: int, end: int) -> Iterator[bytes]:
    """The binary from one byte up to another."""
    while start < end:
        at = start % len(PATTERN)
        chunk = PATTERN[at : at + min(_CHUNK, end - start)]
        start += len(chunk)
        yield chunk


@dataclass
class Blobs:
    """What it serves, and what it was given."""

    length: int
    faulty: tuple[str, ...] = ("GET", "PUT")
    """The methods of which it loses answers."""
    damaged: bool = False
    replaced: bool = False
    """Whether it is another one with each request."""
    requests: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def digest(self) -> str:
        found = hashlib.sha256()
        for chunk in pattern(0, self.length):
            found.update(chunk)
        return f"sha256:{found.hexdigest()}"

    def is_lost(self, method: str, path: str) -> bool:
        self.requests.append(path)
        return method in self.faulty and len(self.requests) % 2 == 1


@contextmanager
def played_blobs(length: int) -> Iterator[Blobs]:
    """Serve until the block ends."""
    played = Blobs(length)
    digest = played.digest

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range", f"bytes=0-{played.length - 1}")
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or played.length) + 1, played.length)
            lost = played.is_lost(self.command, self.path)
            if start >= end:
                self.send_response(416)
                self.end_headers()
                return
            version = len(played.requests) if played.replaced else ""
            etag = f'"{digest}{version}"'
            if self.headers.get("If-Range", etag) != etag:
                start, end = 0, played.length
            is_part = end - start < played.length
            self.send_response(206 if is_part else 200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(end - start))
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{played.length}")
            self.send_header("ETag", etag)
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            shift = int(played.damaged)
            for chunk in pattern(start + shift, (start + end) // 2 if lost else end + shift):
                self.wfile.write(chunk)

        def do_PUT(self) -> None:
            left, found = int(self.headers["Content-Length"]), hashlib.sha256()
            while left and (chunk := self.rfile.read(min(left, _CHUNK))):
                found.update(chunk)
                left -= len(chunk)
            played.taken.append(f"sha256:{found.hexdigest()}")
            if played.is_lost(self.command, self.path):
                return
            body = json.dumps({"digest": played.taken[-1], "length": played.length}).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with answering(Handler) as url:
        played.url = url
        yield played
