"""What malicious requests get: an answer, soon, and little memory."""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import httpx
import pytest
from starlette.responses import Response

from packhorse.runtime.limits import ServiceLimits
from packhorse.runtime.problems import Problem
from packhorse.runtime.request_body import RequestBody
from tests.unit.runtime.apps import MIB, Endless, call, sample_app, send_json

JSON = {"content-type": "application/json"}


def test_an_endless_body_is_cut_at_the_limit() -> None:
    body = Endless()
    answer = call(sample_app(), "POST", "/orders", content=body.chunks(), headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert body.taken <= MIB + 2 * 64 * 1024


def test_an_endless_stream_is_cut_at_the_routes_own_limit() -> None:
    body = Endless()
    answer = call(sample_app(), "PUT", "/streams/a", content=body.chunks())
    assert answer.status_code == 413
    assert 8 * MIB < body.taken <= 8 * MIB + 2 * 64 * 1024


def test_a_body_that_announces_too_much_is_not_read() -> None:
    body = Endless()
    headers = {**JSON, "content-length": str(150 * MIB)}
    answer = call(sample_app(), "POST", "/orders", content=body.chunks(), headers=headers)
    assert answer.status_code == 413
    assert body.taken <= 64 * 1024


def test_a_route_that_streams_takes_more() -> None:
    app = sample_app(limits=ServiceLimits(held_bytes=MIB))  # what is streamed is not held
    answer = call(app, "PUT", "/streams/a", content=b"x" * 8 * MIB)
    assert answer.json() == {"length": 8 * MIB}


def test_a_body_at_the_limit_is_taken() -> None:
    padding = MIB - len(b'{"action":"ADD","paths":[""]}')
    body = b'{"action":"ADD","paths":["' + b"a" * padding + b'"]}'
    assert send_json(sample_app(), body).status_code == 202
    assert send_json(sample_app(), body + b" ").status_code == 413


def test_a_body_that_stops_coming_ends_in_408() -> None:
    async def silent() -> Any:
        yield b'{"action":'
        await asyncio.Event().wait()

    app = sample_app(limits=ServiceLimits(body_grace_s=0.05))
    answer = call(app, "POST", "/orders", content=silent(), headers=JSON)
    assert answer.status_code == 408


def test_a_body_that_trickles_ends_in_408_although_it_never_stops() -> None:
    async def trickle() -> dict[str, Any]:
        await asyncio.sleep(0.005)
        return {"type": "http.request", "body": b"x", "more_body": True}

    taken: list[bytes] = []

    async def read() -> None:
        body = RequestBody(
            {"headers": [(b"transfer-encoding", b"c")]}, trickle, ServiceLimits(body_grace_s=0.05)
        )
        while True:
            taken.append((await body.receive())["body"])

    with pytest.raises(Problem, match="408"):
        asyncio.run(read())
    assert len(taken) < 1000


def test_what_the_server_does_with_the_body_is_not_the_clients_slowness() -> None:
    async def prompt() -> dict[str, Any]:
        await asyncio.sleep(0)  # a time-out ends only what has been suspended
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read() -> None:
        body = RequestBody(
            {"headers": [(b"transfer-encoding", b"c")]}, prompt, ServiceLimits(body_grace_s=60)
        )
        await body.receive()
        later = time.monotonic() + 600
        with mock.patch.object(asyncio.get_running_loop(), "time", return_value=later):
            await body.receive()

    asyncio.run(read())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"action":"ADD","paths":[],"count":' + b"9" * 5000 + b"}",
        b'{"action":"ADD","paths":[],"count":NaN}',
        b'{"action":"ADD","paths":[],"count":Infinity}',
        b'{"action":"ADD","action":"DELETE","paths":[]}',
        b'{"action":"ADD","paths":["/a\n"]}',
        b'{"action":"ADD","paths":["\xff"]}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{",
    ],
)
def test_what_is_no_json_is_400(body: bytes) -> None:
    answer = send_json(sample_app(), body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body",
    [
        b'{"action":"ADD","paths":["/a\\u0000"]}',
        b'{"action":"ADD","paths":["/a\\ud800"]}',
        b'{"action":"ADD","paths":["/a\\udc00b"]}',
        b'{"action":"ADD","paths":[],"x\\u0000":1}',
        b'{"action":"ADD","paths":{"a":["b\\u0000"]}}',
        b'{"action":"ADD","paths":[],"count":1.5}',
        b'{"action":"ADD","paths":[],"count":true}',
        b'{"action":"ADD","paths":null}',
        b"null",
    ],
)
def test_text_that_a_database_cannot_hold_and_wrong_types_are_422(body: bytes) -> None:
    answer = send_json(sample_app(), body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_a_body_with_very_many_faults_gets_a_short_answer() -> None:
    body = b'{"action":"ADD","paths":[' + b",".join([b"1"] * 300_000) + b"]}"
    answer = send_json(sample_app(), body)
    assert answer.status_code == 422
    assert len(answer.content) < 10_000


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "", "@"])
def test_another_media_type_is_415(media_type: str) -> None:
    answer = call(
        sample_app(), "POST", "/orders", content=b"{}", headers={"content-type": media_type}
    )
    assert answer.status_code == 415


@pytest.mark.parametrize("url", ["/orders?limit=%ff", "/streams/%ff%fe", "/%c0%ae"])
def test_r29_a_url_that_is_not_utf8_is_refused_not_repaired(url: str) -> None:
    assert call(sample_app(), "GET", url).status_code == 400


@pytest.mark.parametrize("url", ["/orders?limit=%00", "/streams/a%00", "/%00"])
def test_a_nul_in_a_url_is_refused_before_anybody_sees_it(url: str) -> None:
    assert call(sample_app(), "GET", url).status_code == 422


def test_a_client_that_goes_away_is_nobodys_fault() -> None:
    sent: list[dict[str, Any]] = []
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "PUT",
        "path": "/streams/a",
        "raw_path": b"/streams/a",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")],
    }
    asyncio.run(sample_app()(scope, receive, send))
    assert sent[0]["status"] == 400


def test_requests_beyond_what_the_service_takes_are_503_and_probes_are_answered() -> None:
    async def scenario() -> None:
        entered, release = asyncio.Event(), asyncio.Event()
        app = sample_app(limits=ServiceLimits(in_flight=1))

        @app.get("/slow")
        async def slow() -> None:
            entered.set()
            await release.wait()

        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = asyncio.create_task(client.get("/slow"))
            await entered.wait()
            second = await client.get("/orders")
            assert second.status_code == 429, "one caller has half of the places"
            assert second.headers["retry-after"] == "2"
            assert (await client.get("/readyz")).status_code == 200
            release.set()
            assert (await first).status_code == 200

    asyncio.run(scenario())


def test_answers_carry_the_headers_that_protect_browsers() -> None:
    answer = call(sample_app(), "GET", "/")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers


def test_a_route_decides_about_its_own_caching() -> None:
    app = sample_app()

    @app.get("/cached")
    async def cached() -> Response:
        return Response(headers={"cache-control": "max-age=60"})

    assert call(app, "GET", "/cached").headers.get_list("cache-control") == ["max-age=60"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1.2_3", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), ("", False)],
)
def test_a_request_id_is_kept_when_it_is_harmless(given: str, kept: bool) -> None:
    answer = call(sample_app(), "GET", "/", headers={"x-request-id": given})
    assert (answer.headers["x-request-id"] == given) is kept
    assert answer.headers["x-request-id"]


def test_docs_are_there_when_asked_for_with_a_policy_of_their_own() -> None:
    answer = call(sample_app(docs=True), "GET", "/docs")
    assert answer.status_code == 200
    assert "script-src https:" in answer.headers["content-security-policy"]


def test_the_openapi_document_is_not_made_anew_for_each_stranger_who_asks() -> None:
    app, written = sample_app(), 0
    generate = app.openapi

    def counted() -> dict[str, Any]:
        nonlocal written
        written += 1
        return generate()

    app.openapi = counted  # type: ignore[method-assign]
    answers = [call(app, "GET", "/openapi.json") for _ in range(3)]
    assert [answer.json()["openapi"] for answer in answers] == ["3.1.0"] * 3
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert written == 1


def test_who_is_answered_before_its_body_has_ended_has_to_connect_anew() -> None:
    body = Endless()
    answer = call(sample_app(), "GET", "/livez", content=body.chunks())
    assert (answer.status_code, answer.headers["connection"], body.taken) == (200, "close", 0)
    assert "connection" not in call(sample_app(), "GET", "/livez", content=b"x").headers


def test_refusing_large_bodies_costs_no_memory() -> None:
    app = sample_app()
    call(app, "POST", "/orders", content=Endless().chunks(), headers=JSON)
    tracemalloc.start()
    try:
        call(app, "POST", "/orders", content=Endless().chunks(), headers=JSON)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_a_refused_client_that_still_sends_a_little_is_heard_out() -> None:
    """A connection that is closed on unread bytes is reset, and the answer lost with it."""
    answer = call(sample_app(), "PUT", "/orders", content=b"x" * 1000)
    assert answer.status_code == 405
    assert "connection" not in answer.headers
    body = Endless()
    headers = {"content-length": str(MIB)}
    answer = call(sample_app(), "PUT", "/orders", content=body.chunks(), headers=headers)
    assert (answer.status_code, answer.headers["connection"], body.taken) == (405, "close", 0)
    expecting = {"expect": "100-continue"}
    answer = call(sample_app(), "PUT", "/orders", content=b"x" * 1000, headers=expecting)
    assert answer.headers["connection"] == "close", "it was never asked to send"
