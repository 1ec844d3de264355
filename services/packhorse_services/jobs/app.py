"""A jobs service put together: its parts, its HTTP service, and what makes it ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI

from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import create_app
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.pages.session import session_router
from packhorse.runtime.problems import Kind
from packhorse_services.jobs.page import acting, bulk
from packhorse_services.jobs.page import routes as page_routes
from packhorse_services.jobs.page.rendering import PAGES
from packhorse_services.jobs.parts import Parts, Pool

DESCRIPTION = "Adds, shows, stops and retries jobs; their queues, schedules and events."
_PROBLEMS: Mapping[type[Exception], Kind] = {}

_ROUTERS: Sequence[APIRouter] = (
    session_router(PAGES),
    page_routes.router,
    acting.router,
    bulk.router,
)


@dataclass(frozen=True)
class JobsService:
    """A service that is put together and not started."""

    app: FastAPI
    components: Sequence[Component]


def jobs_service(
    parts: Parts,
    authenticator: Authenticator,
    *,
    components: Sequence[Component] = (),
    docs: bool = False,
) -> JobsService:
    """Put a jobs service together; nothing connects before it is started.

    `components` are started before requests are taken, and stopped after the last.
    """
    app = create_app(
        title="packhorse jobs",
        description=DESCRIPTION,
        authenticator=authenticator,
        readiness={"database": lambda: _ask_database(parts.pool)},
        problems=_PROBLEMS,
        docs=docs,
    )
    app.state.parts = parts
    for router in _ROUTERS:
        app.include_router(router)
    return JobsService(app, (_Open(parts.pool), *components))


@dataclass(frozen=True)
class _Open:
    """Closes the pool after everybody who uses it has stopped."""

    pool: Pool

    def start(self) -> None:
        pass

    def stop(self, timeout: float) -> None:
        self.pool.close(timeout)


def _ask_database(pool: Pool) -> None:
    with pool.connection() as connection:
        connection.execute("SELECT 1")
