"""Answers of a server, as a person reads them and as a script sees them."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from packhorse_services.cli.client.api import Api, CommandFailed, Exit
from packhorse_services.cli.stack.ports import free_port
from tests.harness.answering import answering

PROBLEM = {
    "title": "The request does not say what it must",
    "detail": "a path is wrong",
    "errors": [{"pointer": "/paths/0", "detail": "'content' is not absolute"}],
}
ANSWERS: dict[str, tuple[int, dict[str, str], str]] = {
    "/fine": (200, {}, '{"size": 3}'),
    "/problem": (422, {}, json.dumps(PROBLEM)),
    "/several": (422, {}, json.dumps(PROBLEM | {"detail": "1 thing is wrong; see errors"})),
    "/missing": (404, {}, '{"title": "There is nothing here"}'),
    "/conflict": (409, {}, '{"title": "The request conflicts"}'),
    "/forbidden": (403, {}, '{"title": "The token does not allow this"}'),
    "/unknown-caller": (401, {}, '{"title": "A valid token is needed"}'),
    "/away": (503, {"Retry-After": "2"}, '{"title": "Not available right now"}'),
    "/proxy": (502, {}, "<html>Bad gateway</html>"),
}


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, headers, body = ANSWERS[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with answering(_Answers) as url:
        yield url


def test_an_answer_is_given_as_it_is(url: str) -> None:
    with Api(url, "token") as api:
        assert api.get("/fine") == {"size": 3}


@pytest.mark.parametrize(
    ("path", "code", "says"),
    [
        ("/problem", Exit.USAGE, "/paths/0: 'content' is not absolute"),
        ("/missing", Exit.NOT_FOUND, "There is nothing here (404)"),
        ("/conflict", Exit.CONFLICT, "(409)"),
        ("/forbidden", Exit.FAILED, "--token-file"),
        ("/away", Exit.FAILED, "Try again in 2 s."),
        ("/proxy", Exit.FAILED, "answered 502 Bad Gateway"),
    ],
)
def test_a_problem_says_what_to_do(url: str, path: str, code: Exit, says: str) -> None:
    with Api(url, None) as api, pytest.raises(CommandFailed) as failed:
        api.get(path)
    assert failed.value.code is code
    assert says in str(failed.value)


def test_a_401_without_a_token_says_that_none_was_sent(url: str) -> None:
    with Api(url, None) as api, pytest.raises(CommandFailed, match="No token was sent; name one"):
        api.get("/unknown-caller")
    with Api(url, "wrong") as api, pytest.raises(CommandFailed, match="Name a token that allows"):
        api.get("/unknown-caller")


def test_errors_that_are_shown_are_not_pointed_at(url: str) -> None:
    with Api(url, None) as api, pytest.raises(CommandFailed) as failed:
        api.get("/several")
    assert str(failed.value).splitlines()[1:] == ["/paths/0: 'content' is not absolute"]


def test_nobody_at_the_other_end_is_said_plainly() -> None:
    nobody = Api(f"http://127.0.0.1:{free_port()}", None)
    with nobody, pytest.raises(CommandFailed, match=r"nobody answers at .* is it running"):
        nobody.get("/queues")


@pytest.mark.parametrize(
    "server", ["", "host:80", "localhost", "ftp://host", "http://", "http://h:x"]
)
def test_what_is_no_url_of_a_server_is_a_usage_error(server: str) -> None:
    with pytest.raises(CommandFailed, match="no URL of a server") as failed:
        Api(server, None)
    assert failed.value.code is Exit.USAGE


@pytest.mark.parametrize("value", ["k\u00e9y", "two\nlines", "\x00"])
def test_what_no_header_can_hold_is_a_usage_error(url: str, value: str) -> None:
    with pytest.raises(CommandFailed, match="Authorization may hold") as failed:
        Api(url, value)
    assert failed.value.code is Exit.USAGE
    with Api(url, None) as api, pytest.raises(CommandFailed, match="Idempotency-Key") as failed:
        api.post("/fine", {}, {"Idempotency-Key": value})
    assert failed.value.code is Exit.USAGE
    with (
        Api(url, None) as api,
        pytest.raises(CommandFailed, match="Last-Event-ID") as failed,
        api.follow("/fine", value),
    ):
        pass
    assert failed.value.code is Exit.USAGE
