"""Answers that are late, lost or given up, and streams that the caller closes or keeps waiting."""

import hashlib
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from tests.contract.client.conftest import Ask
from tests.contract.client.prepared import PACKAGES, block, event, example
from tests.harness.answering import answering
from tests.harness.client_runners import LANGUAGES, Runner
from tests.harness.played_service import (
    ACCEPTED,
    CUT,
    UNANSWERED,
    Answer,
    Service,
    fine,
    halting,
    problem,
    stream,
)
from tests.harness.waiting import eventually

BINARY = {"Content-Type": "image/png", "ETag": '"d"', "Accept-Ranges": "bytes"}
REST: Answer = (206, {**BINARY, "Content-Range": "bytes 2-4/5"}, "cde")
GIVEN = {"token": "secret", "patience": 60.0}
RunnerOf = Callable[[str], Runner]


def test_an_answer_that_does_not_begin_in_time_is_lost(ask: Ask, service: Service) -> None:
    service.answers = [UNANSWERED, ACCEPTED]
    assert ask("distribute", path="/a", timeout=1.0).result == {"id": "d1", "repeated": False}
    [key] = set(service.headers("Idempotency-Key"))
    assert key


def test_a_request_that_is_sent_again_leaves_no_connection_open(ask: Ask) -> None:
    connections: list[object] = []

    class Away(BaseHTTPRequestHandler):
        """Says so in a page, as a proxy does, and keeps the connection."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            connections.append(self.client_address)
            is_last = len(connections) == 20
            text = json.dumps(example("publisher", "listQueues")) if is_last else "<h1>Away</h1>"
            self.send_response(200 if is_last else 502)
            self.send_header("Content-Type", "application/json" if is_last else "text/html")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    with answering(Away) as url:
        assert ask("queues", url=url).status == 200
    assert len(connections) == 20
    assert len(set(connections)) <= 2


@pytest.mark.parametrize("language", ["java", "go"])
def test_an_answer_that_does_not_go_on_in_time_is_lost(
    language: str, runner_of: RunnerOf, service: Service
) -> None:
    asked = {"url": service.url, **GIVEN, "timeout": 1.0}
    service.answers = [halting('{"queues": ['), fine(**example("publisher", "listQueues"))]
    assert runner_of(language).call("queues", **asked).status == 200

    def the_rest_is_asked_for() -> bool:  # or all of it, if somebody stood still
        service.answers = [halting("ab", **BINARY), REST]
        told = runner_of(language).call("download", **asked, name="d")
        return bool(told.result == hashlib.sha256(b"abcde").hexdigest())

    eventually(the_rest_is_asked_for)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("lost", "status"), [(CUT, 0), (problem(503, "away", "0"), 503)])
def test_what_is_created_only_where_nothing_is_is_not_sent_again(
    language: str, lost: Answer, status: int, runner_of: RunnerOf, service: Service
) -> None:
    service.answers = [lost, problem(412, "precondition-failed")]
    told = runner_of(language).call("put_node", url=service.url, **GIVEN, path="/a", create=True)
    assert told.status == status, "the node of the first try is no conflict"
    assert service.headers("If-None-Match") == ["*"]


@pytest.mark.parametrize("language", ["typescript", "go"])
def test_a_call_that_is_given_up_does_not_wait_for_its_next_try(
    language: str, runner_of: RunnerOf, service: Service
) -> None:
    def given_up_after_the_first_try() -> bool:  # or before it, if somebody stood still
        service.requested.clear()
        service.answers = [problem(503, "away", "3600"), ACCEPTED]
        asked = {"token": "secret", "patience": -1, "path": "/a", "ends": 0.5}
        assert runner_of(language).call("distribute", url=service.url, **asked).status == 0
        return len(service.requested) == 1

    eventually(given_up_after_the_first_try)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("queues", UNANSWERED),
        ("distribute", UNANSWERED),
        ("node", UNANSWERED),
        ("queues", halting('{"queues": [')),
        ("node", halting("{")),
        ("download", halting("ab", **BINARY)),
        ("download", halting("ab", **{"Content-Type": "image/png"})),
    ],
)
@pytest.mark.parametrize("language", ["typescript", "go"])
def test_a_call_that_is_given_up_ends_wherever_its_answer_is(
    language: str, call: str, answer: Answer, runner_of: RunnerOf, service: Service
) -> None:
    def given_up_after_it_was_asked() -> bool:  # or before it, if somebody stood still
        service.requested.clear()
        service.answers = [answer, problem(404, "not-found")]
        asked = {**GIVEN, "path": "/a", "name": "d", "timeout": 5.0, "ends": 0.5}
        told = runner_of(language).call(call, url=service.url, **asked)
        assert (told.result, told.status) == (None, 0)
        return len(service.requested) == 1

    eventually(given_up_after_it_was_asked)


@pytest.mark.parametrize("language", ["java", "go"])
def test_a_stream_that_is_closed_is_not_opened_again(
    language: str, runner_of: RunnerOf, service: Service
) -> None:
    service.answers = [stream(block(1), missing=100, silent=True), stream(block(2))]
    asked = {**GIVEN, **PACKAGES, "count": 2, "closed": True}
    assert runner_of(language).call("events", url=service.url, **asked).result is None
    assert len(service.requested) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_stream_is_not_silent_while_the_caller_is_at_work(
    language: str, runner_of: RunnerOf, service: Service
) -> None:
    long = f"id: p2\nevent: package\ndata: {json.dumps('x' * 200_000)}\n\n"
    service.answers = [stream(block(1) + long, missing=100, silent=True)]
    asked = {**GIVEN, **PACKAGES, "count": 2, "silence": 0.5, "working": 1.0}

    def opened_once() -> bool:  # again only if the service stood still
        service.requested.clear()
        told = runner_of(language).call("events", url=service.url, **asked)
        assert told.result[0] == event(1)
        assert told.result[1]["id"] == "p2"
        return len(service.requested) == 1

    eventually(opened_once)


def test_a_page_in_the_place_of_a_stream_has_no_events(ask: Ask, service: Service) -> None:
    page = (200, {"Content-Type": "text/plain"}, block(9))
    service.answers = [stream(block(1)), page, stream(block(2))]
    assert ask("events", **PACKAGES, count=2).result == [event(1), event(2)]


def test_a_url_may_end_with_a_slash(runner_of: RunnerOf, service: Service) -> None:
    service.answers = [fine(queues=[])]
    assert runner_of("java").call("queues", url=f"{service.url}/", **GIVEN).result == []
    assert [path for _, path, _, _ in service.requested] == ["/queues"]
