"""The outermost layer of a service: ids, limits, headers, metrics, the last stop of errors."""

import logging
import re
import secrets
import time
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from opentelemetry import context as otel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from packhorse.runtime import metrics, tracing
from packhorse.runtime.problems import TABLE, Problem, Table, problem_from, render
from packhorse.runtime.request_body import GRACE_S, RequestBody

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_DEFAULT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_TRACE_HEADERS = ((b"traceparent", "traceparent"), (b"tracestate", "tracestate"))
REQUEST_ID = "packhorse.request_id"
"""Key of the request's id in the ASGI scope."""

PROBES = frozenset({"/livez", "/readyz", "/startupz", "/metrics"})
"""Answered even when the service has as many requests as it takes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one service takes on."""

    body_bytes: int = 1024 * 1024
    body_grace_s: float = GRACE_S
    in_flight: int = 500
    """Requests at a time; further ones are answered 503."""


DEFAULT_LIMITS = Limits()


class Edge:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, *, limits: Limits, table: Table = TABLE) -> None:
        self._app, self._limits, self._table = app, limits, table
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        scope[REQUEST_ID] = _request_id(headers.get(b"x-request-id", b""))
        trace = {name: headers[raw] for raw, name in _TRACE_HEADERS if raw in headers}
        token = otel.attach(tracing.extract(trace))
        self._in_flight += 1
        metrics.HTTP_IN_FLIGHT.inc()
        try:
            await self._answer(scope, receive, send)
        finally:
            self._in_flight -= 1
            metrics.HTTP_IN_FLIGHT.dec()
            otel.detach(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        body = RequestBody(scope, receive, self._limits.body_bytes, self._limits.body_grace_s)
        answer = _Answer(scope, body, send)
        try:
            _check_encoding(scope)
            if self._in_flight > self._limits.in_flight and scope["path"] not in PROBES:
                raise Problem(503, detail="as many requests as this service takes; try again")
            await self._app(scope, body.receive, answer.send)
        except Exception as error:
            if answer.status:
                raise
            response = respond(scope, error, self._table)
            await response(scope, body.receive, answer.send)
        finally:
            _count(scope, answer.status, time.perf_counter() - began)


class _Answer:
    """Adds to an answer the headers that every answer has, and remembers its status."""

    def __init__(self, scope: Scope, body: RequestBody, send: Send) -> None:
        self._scope, self._body, self._send = scope, body, send
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [pair for pair in _DEFAULT_HEADERS if pair[0] not in present]
            headers.append((b"x-request-id", self._scope[REQUEST_ID].encode()))
            if self.status >= 400 and self._body.unread:
                await self._body.drain()
            if self.status >= 400 and self._body.unread:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)


def respond(scope: Scope, error: Exception, table: Table) -> Response:
    """Return the problem that `error` is, and log what the caller must not see."""
    problem = problem_from(error, table)
    where = {"method": scope["method"], "path": scope["path"], "request_id": scope[REQUEST_ID]}
    if problem.status_code == 500:
        logger.error("a request failed", extra=where, exc_info=error)
    elif problem.status_code > 500:
        logger.warning("a request can't be served now", extra={**where, "error": str(error)})
    return render(problem, request_id=scope[REQUEST_ID], trace_id=tracing.trace_id())


def respond_to(request: Request, error: Exception, table: Table) -> Response:
    """Return the problem for an error that a framework handler was given."""
    return respond(request.scope, error, table)


def _request_id(given: bytes) -> str:
    return given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)


def _check_encoding(scope: Scope) -> None:
    """Refuse what no database takes, and what the server would otherwise repair (R29)."""
    for part in (scope.get("raw_path", b""), scope["query_string"]):
        if b"%" in part:
            decoded = unquote_to_bytes(part)
            if b"\x00" in decoded:
                raise Problem(422, detail="the URL holds the character U+0000; leave it out")
            try:
                decoded.decode()
            except UnicodeDecodeError:
                raise Problem(400, detail="the URL is not valid UTF-8; encode it so") from None


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path_format", "unmatched")
    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
    metrics.HTTP_REQUESTS.labels(method, route, str(status or 499)).inc()
    metrics.HTTP_SECONDS.labels(route).observe(seconds)
