"""HEAD (RFC 9110, 9.3.2): what GET would answer, without its body."""

from collections.abc import Mapping

import pytest
from fastapi.responses import StreamingResponse

from packhorse.runtime.auth import Authenticator
from tests.harness.content import KnownTokens
from tests.unit.runtime.apps import Endless, call, sample_app


@pytest.mark.parametrize("url", ["/orders", "/orders?limit=many", "/errors/missing", "/metrics"])
def test_head_is_answered_as_get_is_without_a_body(url: str) -> None:
    got, asked = (call(sample_app(), method, url) for method in ("GET", "HEAD"))
    assert (asked.status_code, asked.content) == (got.status_code, b"")
    assert _told(asked.headers) == _told(got.headers)


def _told(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers without the request's own."""
    own = ("x-request-id", "content-length")  # the problems name the request, the metrics grow
    return {name: value for name, value in headers.items() if name not in own}


def test_head_says_how_long_the_body_is() -> None:
    length = len(call(sample_app(), "GET", "/orders").content)
    assert call(sample_app(), "HEAD", "/orders").headers["content-length"] == str(length)


def test_head_needs_what_get_needs() -> None:
    assert call(sample_app(Authenticator(KnownTokens())), "HEAD", "/orders").status_code == 401


def test_what_has_no_get_has_no_head() -> None:
    answer = call(sample_app(), "HEAD", "/streams/one")
    assert (answer.status_code, answer.headers["allow"]) == (405, "PUT")


def test_the_document_lists_no_operation_twice() -> None:
    paths = sample_app().openapi()["paths"].values()
    assert not [path for path in paths if "head" in path]


def test_head_of_an_endless_answer_ends() -> None:
    app, body = sample_app(), Endless()
    app.add_api_route("/endless", lambda: StreamingResponse(body.chunks()))
    assert call(app, "HEAD", "/endless").status_code == 200
