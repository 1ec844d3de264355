"""A connector that meets a hostile server: nothing is believed, nothing ends, others go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest

from packhorse.topology import signing
from packhorse.topology.announcements import Announcement, encode
from packhorse.topology.connector_keys import SharedKeys
from packhorse_services.topology.connectors.states import ConnectorPhase
from tests.harness.answering import answering
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import SECRET, Cluster, cluster, running, until_known
from tests.harness.waiting import eventually

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


EVIL = encode(Announcement("evil-1", cluster("evil"), backoff_interval_s=0.2))
OURS = encode(Announcement("evil-1", cluster("two", "evil-1")))
OUR_INSTANCE = encode(Announcement("evil-1", cluster("evil", "evil-1", "two-1")))
JSON = {"content-type": "application/json"}

Asked = Callable[[signing.SignedRequest], Answer]


def _replayed() -> Asked:
    """Answers everything with the right answer to the first request."""
    first: list[Answer] = []

    def answer(request: signing.SignedRequest) -> Answer:
        if not first:
            first.append(signed(request, EVIL))
            return Answer(503)
        return first[0]

    return answer


def _of_other_status(request: signing.SignedRequest) -> Answer:
    answer = signed(request, EVIL)
    return Answer(201, answer.headers, answer.body)


def _with(name: str, value: str) -> Asked:
    def answer(request: signing.SignedRequest) -> Answer:
        found = signed(request, EVIL)
        return Answer(200, {**found.headers, name: value}, found.body)

    return answer


HOSTILE: dict[str, tuple[Asked, str]] = {
    "unsigned": (lambda _: Answer(200, JSON, EVIL), "signature-input is missing"),
    "replayed": (_replayed(), "the signature is wrong"),
    "another status": (_of_other_status, "answers 201"),
    "another body": (
        lambda request: Answer(200, signed(request, EVIL).headers, EVIL.replace(b"evil", b"good")),
        "digest",
    ),
    "another type": (_with("content-type", "text/plain"), "the signature is wrong"),
    "a coding": (_with("content-encoding", "gzip"), "of the form"),
    "another signer": (
        lambda request: signed(request, EVIL, instance="evil-2"),
        "another instance",
    ),
    "no announcement": (lambda request: signed(request, b"[]"), "must be an object"),
    "our cluster": (lambda request: signed(request, OURS), "which is ours"),
    "our instance": (
        lambda request: signed(request, OUR_INSTANCE),
        "two-1 is an instance of our cluster",
    ),
    "too much": (lambda _: Answer(200, JSON, b" " * 3_000_000), "more than"),
    "cut off": (lambda _: Answer(200, JSON, b"x", announced_length=100), "peer"),
    "a redirect": (lambda _: Answer(302, {"location": "http://127.0.0.1:1/"}), "answers 302"),
    "control characters": (lambda _: Answer(500, JSON, b"\x1b[31m\x00\xff"), "answers 500"),
    "no status": (lambda _: Answer(99), ""),
}


@pytest.fixture(scope="module")
def shared(databases: Databases) -> str:
    """One database for all that leave nothing in it."""
    return databases.new()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_not_believed(shared: str, name: str) -> None:
    answer, reason = HOSTILE[name]
    with serving(HostilePeer(answer)) as evil:
        two = Cluster("two", shared, urls=(evil.url,))
        with running(two):
            eventually(lambda: two.outgoing()[0].reason and len(evil.requests) > 2)
            [state] = two.outgoing()
            assert state.state is ConnectorPhase.FAILED
            assert reason in state.reason
            assert state.reason.isprintable()
            assert two.remotes() == []
            assert two.assembled.connectors.failure() is None


def test_beside_a_hostile_peer_others_are_heard(databases: Databases) -> None:
    with serving(HostilePeer(lambda _: Answer(200, JSON, b"[" * 100_000))) as evil:
        one = Cluster("one", databases.new())
        two = Cluster("two", databases.new(), urls=(evil.url, one.url))
        with running(one, two):
            until_known(two, ["one"])
            eventually(lambda: two.states() == [ConnectorPhase.FAILED, ConnectorPhase.CONNECTED])


def test_user_and_password_are_sent_and_never_shown(databases: Databases) -> None:
    with serving(HostilePeer(lambda request: signed(request, EVIL))) as peer:
        url = peer.url.replace("//", "//user:secret@")
        two = Cluster("two", databases.new(), urls=(url,))
        with running(two):
            until_known(two, ["evil"])
            [state] = two.outgoing()
            assert state.url == f"{peer.url}/topology/connectors"
        last = "DELETE", "Basic dXNlcjpzZWNyZXQ="
        eventually(
            lambda: (
                [(method, sent["authorization"]) for method, sent in peer.requests[-1:]] == [last]
            )
        )


def test_what_is_sent_encrypted_can_not_be_read(databases: Databases) -> None:
    seen: list[str] = []

    def answer(request: signing.SignedRequest) -> Answer:
        seen.append(request.headers["content-type"])
        return Answer(503)

    with serving(HostilePeer(answer)) as evil:
        two = Cluster("two", databases.new(), urls=(evil.url,), encryption=True)
        with running(two):
            eventually(lambda: seen)
        assert set(seen) == {"application/vnd.packhorse.sealed"}
