"""What a client trusts is loaded by its first connection with TLS, and is checked all the same."""

import asyncio
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from packhorse import AsyncClient, Client
from packhorse.client.errors import NotReached
from tests.harness.answering import answering
from tests.harness.certificates import write_certificates


class Queues(BaseHTTPRequestHandler):
    """A publisher without queues."""

    def do_GET(self) -> None:
        """Answer with an empty list."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"queues": []}')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[str]:
    key, certificate = write_certificates(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with answering(Queues, tls) as url:
        yield url


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def _asked(url: str) -> object:
    with Client(url, token="t", patience_s=0) as client:
        return client.queues()


def test_a_server_of_a_trusted_authority_is_talked_to(
    secured: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
    assert _asked(secured) == []

    async def awaited() -> object:
        async with AsyncClient(secured, token="t", patience_s=0) as client:
            return await client.queues()

    assert asyncio.run(awaited()) == []


def test_a_server_of_an_unknown_authority_is_not(
    secured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with pytest.raises(NotReached, match="certificate verify failed"):
        _asked(secured)


def test_who_talks_plain_http_loads_none(secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with answering(Queues) as url:
        assert _asked(url) == []
    with pytest.raises(NotReached, match="No such file"):
        _asked(secured)
