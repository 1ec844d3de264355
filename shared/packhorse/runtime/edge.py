"""The outermost layer of a service: ids, limits, headers, metrics, the last stop of errors."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Collection
from functools import cache
from urllib.parse import unquote_to_bytes

from opentelemetry import context as otel
from prometheus_client import Counter, Histogram
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from packhorse.runtime import audit, metrics, tracing
from packhorse.runtime.configuration import is_loopback
from packhorse.runtime.limits import DEFAULT_LIMITS
from packhorse.runtime.places import SURPLUS, RequestPlace, Shares, enter
from packhorse.runtime.problems import TABLE, Problem, Table, problem_from, render
from packhorse.runtime.request_body import RequestBody

_OWN_SITES = ("", "same-origin", "none")
logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_DEFAULT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_PART_BYTES = 256 * 1024
_warnings = audit.RefusalLimit()
_TRACE_HEADERS = ((b"traceparent", "traceparent"), (b"tracestate", "tracestate"))
REQUEST_ID = "packhorse.request_id"
"""Key of the request's id in the ASGI scope."""

PROBES = frozenset({"/livez", "/readyz", "/startupz", "/metrics"})
"""Answered even when the service has as many requests as it takes."""


class Edge:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, *, table: Table = TABLE) -> None:
        self._app, self._table = app, table
        self._shares: Shares | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        scope[REQUEST_ID] = _request_id(headers.get(b"x-request-id", b""))
        trace = {name: headers[raw] for raw, name in _TRACE_HEADERS if raw in headers}
        token = otel.attach(tracing.extract(trace))
        metrics.HTTP_IN_FLIGHT.inc()
        try:
            with audit.answering(scope):
                await self._answer(scope, receive, send)
        finally:
            metrics.HTTP_IN_FLIGHT.dec()
            otel.detach(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        shares = self._shares_of(scope)
        body = RequestBody(scope, receive, shares.limits)
        answer = _Answer(scope, body, send)
        try:
            self._check_host(scope, shares)
            _check_encoding(scope)
            if scope["path"] not in PROBES:
                answer.place = self._place(scope, shares)
                body.share(shares)
            await self._app(scope, body.receive, answer.send)
        except Exception as error:
            if answer.status:
                raise
            response = respond(scope, error, self._table)
            await response(scope, body.receive, answer.send)
        finally:
            body.release()
            answer.leave()
            _count(scope, answer.status, time.perf_counter() - began)
            audit.request_ended(
                scope, answer.status, request_id=scope[REQUEST_ID], location=answer.location
            )

    def _shares_of(self, scope: Scope) -> Shares:
        """Return what the app's requests share; its limits are known once it is served."""
        if self._shares is None:
            self._shares = Shares(getattr(scope["app"].state, "limits", DEFAULT_LIMITS))
        return self._shares

    def _check_host(self, scope: Scope, shares: Shares) -> None:
        """Check by which name it is called; probes come by the address of the machine."""
        anybody: bool = scope["app"].state.authenticator.is_off
        if anybody or scope["path"] not in PROBES:
            check_host(scope, shares.limits.allowed_hosts, anybody=anybody)

    def _place(self, scope: Scope, shares: Shares) -> RequestPlace:
        if scope.get(SURPLUS):
            raise Problem(
                429,
                detail="as many connections as this service takes are open; try again",
                headers={"Connection": "close"},
            )
        return enter(scope, shares)


class _Answer:
    """Adds to an answer the headers that every answer has, and remembers its status."""

    def __init__(self, scope: Scope, body: RequestBody, send: Send) -> None:
        self._scope, self._body, self._send = scope, body, send
        self.status = 0
        self.location = ""
        self._over = False
        self.place: RequestPlace | None = None

    def leave(self) -> None:
        """Give the request's place back."""
        if self.place is not None:
            self.place.leave()

    async def send(self, message: Message) -> None:
        """Send as ASGI has it; an answer to HEAD is over with its head, a stream's too."""
        if self._over:
            await asyncio.sleep(0)  # who streams learns now that its client wants no more
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            present = {name.lower(): value for name, value in headers}
            self.location = present.get(b"location", b"").decode("latin-1")
            headers += [pair for pair in _DEFAULT_HEADERS if pair[0] not in present]
            headers.append((b"x-request-id", self._scope[REQUEST_ID].encode()))
            if self._body.unread:
                if self.status >= 400:
                    self.leave()
                await self._body.drain()
            if self._body.unread:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send_in_parts(message)
        if self._scope["method"] == "HEAD":
            self._over = True
            await self._send({"type": "http.response.body"})

    async def _send_in_parts(self, message: Message) -> None:
        """Send a long answer as its client reads it, so that its places are taken until then.

        What is handed on at once is kept for the client, and the request is over.
        """
        body = message.get("body", b"")
        for start in range(0, len(body) - _PART_BYTES, _PART_BYTES):
            part = body[start : start + _PART_BYTES]
            await self._send({**message, "body": part, "more_body": True})
        if len(body) > _PART_BYTES:
            rest = (len(body) - 1) // _PART_BYTES * _PART_BYTES
            message = {**message, "body": body[rest:]}
        await self._send(message)


def respond(scope: Scope, error: Exception, table: Table) -> Response:
    """Return the problem that `error` is, and log what the caller must not see."""
    problem = problem_from(error, table)
    audit.refused(scope, problem.kind.slug)
    where = {"method": scope["method"], "path": scope["path"], "request_id": scope[REQUEST_ID]}
    if problem.status_code == 500:
        logger.error("a request failed", extra=where, exc_info=error)
    elif (
        problem.status_code > 500
        and (left_out := _warnings.take(problem.kind.slug, "")) is not None
    ):
        reported = {**where, "error": str(error), "left_out_before": left_out}
        logger.warning("a request can't be served now", extra=reported)
    return render(problem, request_id=scope[REQUEST_ID], trace_id=tracing.trace_id())


def respond_to(request: Request, error: Exception, table: Table) -> Response:
    """Return the problem for an error that a framework handler was given."""
    return respond(request.scope, error, table)


def _request_id(given: bytes) -> str:
    if _REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"{random.getrandbits(96):024x}"


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
    requests, durations = _counters(method, route, status or 499)
    requests.inc()
    durations.observe(seconds)


@cache
def _counters(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    """Return what counts such answers; looked up once, for a look costs as much as counting."""
    return (
        metrics.HTTP_REQUESTS.labels(method, route, str(status)),
        metrics.HTTP_SECONDS.labels(route),
    )


# A page of anybody's can send requests to this machine's ports, and let its own name resolve to
# this machine. A token keeps it out; without authentication these checks do.
def check_host(scope: Scope, allowed: Collection[str], *, anybody: bool) -> None:
    """Refuse a request by another name; where `anybody` may do all, this machine's names alone do.

    Raises `Problem` 421, or 403 for what another site's page has sent.
    """
    if not allowed and not anybody:
        return
    headers = dict(scope["headers"])
    name = _name(headers.get(b"host", b"").decode("latin-1"))
    if name not in allowed and not (anybody and is_loopback(name)):
        raise Problem(
            421,
            detail=f"this service is not called {name[:100]!r}; "
            "an operator may allow the name with PACKHORSE_ALLOWED_HOSTS",
        )
    if anybody and headers.get(b"sec-fetch-site", b"").decode("latin-1") not in _OWN_SITES:
        raise Problem(403, detail="a page of another site has sent this; turn authentication on")


def _name(host: str) -> str:
    """Return the host without its port, in lower case and without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
