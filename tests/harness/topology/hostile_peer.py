"""A peer that answers whatever a test wants."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from packhorse.topology import signing
from packhorse.topology.connector_keys import SharedKeys
from tests.harness.answering import answering
from tests.harness.topology.clusters import SECRET

KEYS = SharedKeys([SECRET])


@dataclass
class Answer:
    """Status, headers and body, which may be shorter than it is said to be."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    announced_length: int | None = None


Asked = Callable[[signing.SignedRequest], Answer]


@dataclass
class HostilePeer:
    """`answer` makes what is answered to a PUT; `requests` are those that came."""

    answer: Asked
    url: str = ""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def signed(request: signing.SignedRequest, body: bytes, *, instance: str = "evil-1") -> Answer:
    """An answer with a right signature, to that request."""
    now = signing.parsed(request).created
    plain = signing.Response(200, {"content-type": "application/json"}, request)
    headers = signing.sign(plain, body, KEYS, KEYS.key_id(now, instance), now)
    return Answer(headers=headers, body=body)


@contextmanager
def serving(peer: HostilePeer) -> Iterator[HostilePeer]:
    """Serve it on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            length = int(self.headers.get("content-length", 0))
            self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            peer.requests.append((self.command, headers))
            fields = signing.fields(self.headers.items())
            request = signing.SignedRequest(self.command, headers["host"], self.path, fields)
            self._send(peer.answer(request))

        def do_DELETE(self) -> None:
            self.do_PUT()

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            length = (
                len(answer.body) if answer.announced_length is None else answer.announced_length
            )
            self.send_header("content-length", str(length))
            self.end_headers()
            self.wfile.write(answer.body)

    with answering(Handler) as peer.url:
        yield peer
