"""Routes that are called without the framework's layers, which cost three times what they call.

A route stays declared as all are: its OpenAPI is generated from it, and the framework can serve it.
What is valid goes straight to the route's function. Whatever is not goes to the framework as it
came, which says what is wrong; so an answer does not depend on the way that was taken.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from packhorse.runtime.guards import check_of
from packhorse.runtime.strict_json import json_of

_JSON = b"application/json"


class DirectRoutes:
    """ASGI middleware for an app's direct routes; see the module."""

    def __init__(self, app: ASGIApp, routes: dict[tuple[str, str], "DirectRoute"]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            route = self._routes.get((scope["method"], scope["path"]))
            if route is not None:
                receive = replay = _Replay(receive)
                if (response := await route.answer(scope, replay)) is not None:
                    await response(scope, receive, send)
                    return
                replay.begin_again()
        await self._app(scope, receive, send)


class DirectRoute:
    """A route as its function takes it: the request, checks' results, headers and one JSON body."""

    def __init__(self, route: APIRoute) -> None:
        """Compile what is called. Raises `TypeError` for a route that takes something else too."""
        dependant = route.dependant
        if dependant.path_params or dependant.query_params or dependant.cookie_params:
            raise TypeError(f"{route.path} takes more than headers and a body")
        [body] = dependant.body_params
        self._route, self._call, self._body = route, dependant.call, _Part(body)
        self._request = dependant.request_param_name
        self._headers = [_Part(field) for field in dependant.header_params]
        self._checks = [(below.name or "", check_of(below)) for below in dependant.dependencies]

    async def answer(self, scope: Scope, receive: "_Replay") -> Response | None:
        """Return the answer, or None when the framework is to give it.

        Raises what a check, the reading of the body, or the route's function raises.
        """
        scope["route"] = self._route
        if _header(scope, b"content-type") != _JSON:
            return None
        request = Request(scope, receive)
        arguments: dict[str, Any] = {}
        for name, check in self._checks:
            arguments[name] = await check(request)
        body = await _body(receive)
        if not body:
            return None
        try:
            arguments[self._body.name] = self._body.validate(json_of(body.decode()))
            arguments.update(self._given(scope))
        except (ValueError, RecursionError):  # pydantic's ValidationError is one too
            return None
        receive.forget()
        if self._request:
            arguments[self._request] = request
        answer: Response = await self._call(**arguments)  # type: ignore[misc]
        return answer

    def _given(self, scope: Scope) -> Iterator[tuple[str, Any]]:
        for part in self._headers:
            value = _header(scope, part.header)
            if value is not None:
                yield part.name, part.validate(value.decode("latin-1"))


class _Part:
    """A parameter of a route's function, and what makes its value."""

    def __init__(self, field: Any) -> None:
        self.name, self.header = field.name, field.alias.encode()
        declared: Any = Annotated[field.field_info.annotation, field.field_info]
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
        self.validate: Callable[[Any], Any] = adapter.validate_python


class _Replay:
    """An ASGI `receive` that can begin again with what it has received."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received: list[Message] = []
        self._keeps = True
        self._again: deque[Message] = deque()

    async def __call__(self) -> Message:
        """Receive as ASGI has it."""
        if self._again:
            return self._again.popleft()
        message = await self._receive()
        if self._keeps:
            self._received.append(message)
        return message

    def begin_again(self) -> None:
        """Give what was received once more."""
        self._again = deque(self._received)
        self.forget()

    def forget(self) -> None:
        """Keep nothing from now on."""
        self._received, self._keeps = [], False


def serve_directly(
    app: FastAPI, router: APIRouter, functions: Sequence[Callable[..., Any]]
) -> None:
    """Call the routes of these functions of `router` directly. Raises as `DirectRoute`."""
    routes: dict[tuple[str, str], DirectRoute] = app.state.direct_routes
    for route in router.routes:
        if isinstance(route, APIRoute) and route.endpoint in functions:
            for method in route.methods or ():
                routes[method, route.path] = DirectRoute(route)


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


async def _body(receive: Receive) -> bytes:
    """Return the body, or nothing when the client has gone."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
