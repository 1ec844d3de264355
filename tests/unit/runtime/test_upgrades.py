"""A client that offers another protocol (`Upgrade: h2c`) is served as if it had offered none.

The JDK's client and `curl --http2` offer h2c with every request on plain HTTP.
"""

import asyncio
import tempfile
from functools import cache
from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import ServiceDescription, create_app
from packhorse.runtime.readiness import Readiness
from tests.harness.openapi import SERVICES
from tests.unit.runtime.serving import received_after, serving

JDK_CLIENT = Path(__file__).parents[2] / "clients" / "java" / "Ask.java"
OFFER = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
)
HIDDEN = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def echo() -> FastAPI:
    app = create_app(ServiceDescription("t", "t"), Authenticator.off(), Readiness({}))

    @app.post("/echo")
    async def give_back(request: Request) -> str:
        return (await request.body()).decode()

    return app


def _post(path: str, body: bytes, extra: bytes = OFFER) -> bytes:
    length = f"Content-Length: {len(body)}\r\n".encode()
    return b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n" + extra + length + b"\r\n"


def _ask(app: FastAPI, *segments: bytes, answers: int = 1) -> bytes:
    async def asking() -> bytes:
        async with serving(app) as address:
            return await received_after(address, *segments, answers=answers)

    return asyncio.run(asking())


def _bodies(answer: bytes) -> list[bytes]:
    """Return the status and the last line of each answer."""
    answers = answer.split(b"HTTP/1.1 ")[1:]
    return [each[:3] + b" " + each.rpartition(b"\r\n\r\n")[2] for each in answers]


@pytest.mark.parametrize("together", [True, False], ids=["one segment", "two segments"])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.0"])
def test_a_body_behind_an_offered_protocol_arrives(protocol: bytes, together: bool) -> None:
    head = _post("/echo", b"the body", OFFER.replace(b"h2c", protocol))
    segments = [head + b"the body"] if together else [head, b"the body"]
    assert _bodies(_ask(echo(), *segments)) == [b'200 "the body"']


def test_chunks_behind_an_offered_protocol_arrive() -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n" + OFFER + b"Transfer-Encoding: chunked\r\n"
    segments = (head + b"\r\n4\r\nthe \r\n", b"4\r\nbody\r\n0\r\n", b"\r\n")
    assert _bodies(_ask(echo(), *segments)) == [b'200 "the body"']


def test_many_offers_in_one_segment_are_that_many_requests() -> None:
    one = _post("/echo", b"x") + b"x"
    assert _bodies(_ask(echo(), 12 * one, answers=12)) == 12 * [b'200 "x"']


def test_a_connection_to_elsewhere_is_refused_and_closed() -> None:
    answer = _ask(echo(), b"CONNECT localhost:80 HTTP/1.1\r\nHost: a\r\n\r\n", HIDDEN)
    assert _bodies(answer)[0].startswith(b"405 ")
    assert len(_bodies(answer)) == 1


def test_two_lengths_are_refused_behind_an_offer_too() -> None:
    both = OFFER + b"Transfer-Encoding: chunked\r\n"
    answer = _ask(echo(), _post("/echo", b"0\r\n\r\n", both) + b"0\r\n\r\n" + HIDDEN)
    assert [each[:3] for each in _bodies(answer)] == [b"400"]


@cache
def _app(service: str) -> FastAPI:
    return SERVICES[service](tempfile.mkdtemp(prefix="packhorse-test-"))


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("offer", [OFFER, b""], ids=["h2c", "plain"])
def test_no_service_takes_a_body_for_a_second_request(service: str, offer: bytes) -> None:
    answer = _ask(_app(service), _post("/nothing-here", HIDDEN, offer), HIDDEN)
    assert [each[:3] for each in _bodies(answer)] == [b"404"]


def test_the_jdks_client_and_curl_send_bodies_with_their_defaults() -> None:
    body = '{"up_to_offset": 3}'

    async def run(url: str, *command: str) -> str:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    async def asking() -> tuple[str, str]:
        async with serving(echo()) as (host, port):
            url = f"http://{host}:{port}/echo"
            quick = ("-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
            request = (str(JDK_CLIENT), "POST", url, body, body)
            java = await run(url, "java", *quick, *request)
            return java, await run(url, "curl", "-s", "--http2", "-X", "POST", "-d", body, url)

    java, curl = asyncio.run(asking())
    quoted = '"{\\"up_to_offset\\": 3}"'
    assert java == f"HTTP_1_1 200 {quoted}\n" * 2
    assert curl == quoted
