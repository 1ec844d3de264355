"""The HTTP application that every service builds on: probes, problems, limits, OpenAPI."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

import packhorse
from packhorse.runtime.auth import Authenticator, require
from packhorse.runtime.direct_routes import DirectRoutes
from packhorse.runtime.edge import Edge, respond_to
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.metrics import BUILD, Reported
from packhorse.runtime.openapi import complete
from packhorse.runtime.problems import GENERIC, TABLE, Problem, ProblemKind, Table
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.stopping import StopEvent
from packhorse.runtime.validation import StrictRoute, problem_of_validation


@dataclass(frozen=True)
class Service:
    """A service that is put together and not started."""

    app: FastAPI
    components: Sequence[Component]


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_DOCS_POLICY = (
    "default-src 'none'; script-src https: 'unsafe-inline'; style-src https: 'unsafe-inline'; "
    "img-src https: data:; connect-src 'self'"
)


@dataclass(frozen=True)
class ServiceDescription:
    """What a service is to its clients, beside its routes.

    `problems` adds its exceptions to the table of `packhorse.runtime.problems`; a subclass found
    there wins over its parents. `documentation` names the packages whose `documentation.json`
    completes the OpenAPI document.
    """

    title: str
    text: str
    problems: Mapping[type[Exception], ProblemKind] = field(default_factory=dict)
    documentation: Sequence[str] = ()


def create_app(
    service: ServiceDescription,
    authenticator: Authenticator,
    readiness: Readiness,
    *,
    lifespan: Lifespan | None = None,
    docs: bool = False,
    agent: str | None = None,
) -> FastAPI:
    """Return an app that has everything but the service's own routes.

    `docs` serves pages at /docs. `agent` is the publisher agent that the app is for: tokens for
    other agents are refused.
    """
    table: Table = {**TABLE, **service.problems}
    app = _bare_app(service.title, service.text, lifespan)
    app.state.problems = table
    app.state.authenticator, app.state.agent = authenticator, agent
    app.state.readiness, app.state.stopping = readiness, StopEvent()
    readiness.add_warning("tokens", authenticator.check)
    app.state.document, app.state.direct_routes = b"", {}
    app.add_middleware(DirectRoutes, routes=app.state.direct_routes)
    app.add_middleware(Edge, table=table)
    _handle_errors(app, table)
    _serve_itself(app, table)
    if docs:
        _serve_docs(app)
    complete(app, service.documentation)
    BUILD.info({"version": packhorse.__version__})
    return app


def add_routes(app: FastAPI, *routers: APIRouter) -> None:
    """Serve the routers' routes as they were declared; a router's settings are theirs already.

    The framework's own `include_router` would analyse each of them once more for this app, at its
    first request, and look for the route of every request twice.
    """
    app.router.routes.extend(route for router in routers for route in router.routes)


def _bare_app(title: str, description: str, lifespan: Lifespan | None) -> FastAPI:
    app = FastAPI(
        title=title,
        description=description,
        version=packhorse.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.router.route_class = StrictRoute
    return app


def _handle_errors(app: FastAPI, table: Table) -> None:
    async def on_framework_error(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and not isinstance(error, Problem):
            headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
            error = Problem(error.status_code, headers=headers)
        return respond_to(request, error, table)

    async def on_invalid(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        return respond_to(request, problem_of_validation(error), table)

    app.add_exception_handler(HTTPException, on_framework_error)
    app.add_exception_handler(RequestValidationError, on_invalid)


def _allowed(request: Request) -> str:
    """Return the methods of the path; the framework names those of its first route alone."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return ", ".join(
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in routes)
    )


def _serve_itself(app: FastAPI, table: Table) -> None:
    """Add the routes of every service; plain ones, since each request is held against them."""
    kinds = {kind.slug: kind for kind in (*GENERIC.values(), *table.values())}

    async def explain_problem(request: Request) -> Response:
        kind = kinds.get(request.path_params["slug"])
        if kind is None:
            raise Problem(404)
        return JSONResponse({"type": kind.type, "title": kind.title, "status": kind.status})

    app.add_route("/", _version)
    app.add_route("/openapi.json", _document)
    app.add_route("/livez", _alive)
    app.add_route("/startupz", _alive)  # nothing is served before the components have started
    app.add_route("/readyz", _ready)
    app.add_route("/problems/{slug}", explain_problem)
    app.add_api_route(
        "/metrics", _metrics, dependencies=[Depends(require(None))], include_in_schema=False
    )


async def _version(request: Request) -> Response:
    return JSONResponse({"service": request.app.title, "version": packhorse.__version__})


async def _document(request: Request) -> Response:
    """Return the OpenAPI document, written once: it is long, and who asks needs no token."""
    state = request.app.state
    if not state.document:
        state.document = JSONResponse(request.app.openapi()).body
    return Response(state.document, media_type="application/json")


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    failures: dict[str, str] = await request.app.state.readiness.failures()
    if request.app.state.stopping.is_set():
        failures = {**failures, "serving": "stopping"}
    ready = not any(failures.values())
    body: dict[str, Any] = {"status": "ok" if ready else "unavailable"}
    if "verbose" in request.query_params:
        body["checks"] = {name: reason or "ok" for name, reason in failures.items()}
        if warnings := await request.app.state.readiness.warnings():
            body["warnings"] = warnings
    return JSONResponse(body, 200 if ready else 503)


async def _metrics() -> Response:
    return Response(generate_latest(Reported()), media_type=CONTENT_TYPE_LATEST)


def _serve_docs(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def interactive_docs() -> HTMLResponse:
        page = get_swagger_ui_html(openapi_url="/openapi.json", title=app.title)
        page.headers["content-security-policy"] = _DOCS_POLICY
        return page
