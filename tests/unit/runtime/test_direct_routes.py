"""A direct route answers as the framework does, whatever it is sent."""

from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response

from packhorse.runtime.auth import Authenticator, Principal, require
from packhorse.runtime.direct_routes import serve_directly
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.problems import Problem
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.validation import StrictBody, StrictRoute
from tests.unit.runtime.apps import Endless, call


class Order(StrictBody):
    action: str
    paths: list[str] = Field(default_factory=list)


class OneToken:
    async def principal(self, token: str) -> Principal | None:
        return Principal("one", frozenset({"distribute"})) if token == "known" else None


def _router() -> APIRouter:
    router = APIRouter(route_class=StrictRoute)

    @router.post("/orders", status_code=202, response_model=dict[str, Any])
    async def order(
        request: Request,
        body: Order,
        caller: Annotated[Principal, Depends(require("distribute"))],
        key: Annotated[str | None, Header(min_length=2, pattern="^[a-z]+$")] = None,
    ) -> Response:
        if body.action == "FAIL":
            raise Problem(409, detail="it can't be ordered")
        found = {"action": body.action, "paths": body.paths, "caller": caller.name, "key": key}
        return JSONResponse({**found, "method": request.method}, 202, {"Location": "/orders/1"})

    return router


def _app(*, direct: bool, authenticator: Authenticator | None = None) -> FastAPI:
    app = create_app(
        ServiceDescription("sample", "for tests"),
        authenticator or Authenticator.off(),
        Readiness({}),
    )
    router = _router()
    add_routes(app, router)
    if direct:
        functions = [route.endpoint for route in router.routes]  # type: ignore[attr-defined]
        serve_directly(app, router, functions)
    return app


JSON = {"content-type": "application/json"}
VALID = b'{"action":"ADD","paths":["/a"]}'
REQUESTS: dict[str, dict[str, Any]] = {
    "valid": {"content": VALID, "headers": JSON},
    "without what may be left out": {"content": b'{"action":"ADD"}', "headers": JSON},
    "with a header": {"content": VALID, "headers": {**JSON, "key": "abc"}},
    "a header twice": {"content": VALID, "headers": [*JSON.items(), ("key", "ab"), ("key", "cd")]},
    "a wrong header": {"content": VALID, "headers": {**JSON, "key": "A"}},
    "a refusal of the route": {"content": b'{"action":"FAIL"}', "headers": JSON},
    "another spelling of JSON": {"content": VALID, "headers": {"content-type": "text/x+json"}},
    "JSON with a charset": {
        "content": VALID,
        "headers": {"content-type": "application/json; charset=utf-8"},
    },
    "another media type": {"content": VALID, "headers": {"content-type": "text/plain"}},
    "no media type": {"content": VALID},
    "no body": {"headers": JSON},
    "no JSON": {"content": b'{"action":', "headers": JSON},
    "a byte order mark": {"content": b"\xef\xbb\xbf" + VALID, "headers": JSON},
    "no UTF-8": {"content": b'{"action":"\xff"}', "headers": JSON},
    "a member twice": {"content": b'{"action":"A","action":"B"}', "headers": JSON},
    "no number": {"content": b'{"action":NaN}', "headers": JSON},
    "nested too deep": {"content": b"[" * 100_000, "headers": JSON},
    "an unknown member": {"content": b'{"action":"A","b":1}', "headers": JSON},
    "another type": {"content": b'{"action":1}', "headers": JSON},
    "half a surrogate pair": {"content": b'{"action":"\\ud800"}', "headers": JSON},
    "a long body": {"content": b'{"action":"' + b"a" * 2**21 + b'"}', "headers": JSON},
    "an unknown query": {"content": VALID, "headers": JSON, "params": {"a": "b"}},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_the_frameworks(name: str) -> None:
    direct, framework = (_answer(direct, **REQUESTS[name]) for direct in (True, False))
    assert _reported(direct) == _reported(framework)


@pytest.mark.parametrize("token", ["known", "unknown", None])
def test_callers_are_let_in_as_by_the_framework(token: str | None) -> None:
    headers = {**JSON, **({"authorization": f"Bearer {token}"} if token else {})}
    answers = [
        call(
            _app(direct=direct, authenticator=Authenticator(OneToken())),
            *("POST", "/orders"),
            content=VALID,
            headers=headers,
        )
        for direct in (True, False)
    ]
    assert _reported(answers[0]) == _reported(answers[1])
    assert answers[0].status_code == (202 if token == "known" else 401)


@pytest.mark.parametrize("direct", [True, False])
def test_r33_of_a_strangers_body_nothing_is_read(direct: bool) -> None:
    app = _app(direct=direct, authenticator=Authenticator(OneToken()))
    body = Endless()
    answer = call(app, "POST", "/orders", content=body.chunks(), headers=JSON)
    assert (answer.status_code, body.taken) == (401, 0)


def test_what_is_valid_does_not_need_the_framework() -> None:
    app = create_app(ServiceDescription("sample", "for tests"), Authenticator.off(), Readiness({}))
    router = _router()
    serve_directly(app, router, [route.endpoint for route in router.routes])  # type: ignore[attr-defined]
    assert call(app, "POST", "/orders", content=VALID, headers=JSON).status_code == 202


def test_other_methods_are_the_frameworks() -> None:
    answers = [call(_app(direct=direct), "GET", "/orders") for direct in (True, False)]
    assert _reported(answers[0]) == _reported(answers[1])
    assert answers[0].status_code == 405


def test_a_route_that_takes_more_than_headers_and_a_body_is_refused() -> None:
    router = APIRouter(route_class=StrictRoute)

    @router.post("/orders")
    async def order(body: Order, limit: int = 1) -> None:
        """Take a parameter of the query."""

    with pytest.raises(TypeError, match="more than headers and a body"):
        serve_directly(_app(direct=False), router, [order])


def test_a_route_with_a_dependency_that_is_no_check_is_refused() -> None:
    router = APIRouter(route_class=StrictRoute)

    def number() -> int:
        return 1

    @router.post("/orders")
    async def order(body: Order, number: Annotated[int, Depends(number)]) -> None:
        """Take what no check gives."""

    with pytest.raises(TypeError, match="number is made by more than a check"):
        serve_directly(_app(direct=False), router, [order])


def _answer(direct: bool, **options: Any) -> httpx.Response:
    return call(_app(direct=direct), "POST", "/orders", **options)


def _reported(answer: httpx.Response) -> tuple[int, Any, list[tuple[str, str]]]:
    """Return what an answer says, without what is different in each."""
    body = {
        name: value
        for name, value in answer.json().items()
        if name not in ("request_id", "trace_id")
    }
    headers = [pair for pair in answer.headers.multi_items() if pair[0] != "x-request-id"]
    return answer.status_code, body, headers
