"""The console put together: its pages, and the services that they ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from packhorse.client.errors import ClientError
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.readiness import Readiness
from packhorse_services.console.explore import (
    compare,
    comparisons,
    content,
    download,
    journal,
    live,
)
from packhorse_services.console.frame.session import admit_visitors
from packhorse_services.console.frame.visit import not_done, show_problems
from packhorse_services.console.page import (
    acts,
    clearing,
    commands,
    distribute,
    distributions,
    failures,
    mending,
    overview,
    provider,
    queue,
    releases,
    subscriber,
)
from packhorse_services.console.parts import assemble
from packhorse_services.console.settings import Settings
from packhorse_services.console.work import acting as work_acts
from packhorse_services.console.work import bulk, jobs, pipeline, schedules, topology

_SERVICE = ServiceDescription(
    "packhorse console",
    "Shows where content is and what stands in its way, as pages for people.",
    documentation=(__package__,),
)
_PAGES = (
    *(provider, overview, clearing, queue, subscriber, distributions, mending, failures),
    *(commands, acts, distribute, releases, content, download, compare, comparisons, live, journal),
    *(jobs, bulk, work_acts, schedules, topology, pipeline),
)
"""`/jobs/all/…` of `bulk` is held against a path before `/jobs/{number}/…` of `work_acts` is."""


def console(settings: Settings, authenticator: Authenticator) -> FastAPI:
    """Put the console together; it is ready when it serves, for it shows who does not answer."""
    parts = assemble(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with parts.audit.listening():
            yield
        if parts.provider is not None:
            await parts.provider.close()
        asked = (parts.publishers, parts.contents, parts.compared)
        for services in (*asked, *parts.programs.values()):
            await services.close()

    app = create_app(_SERVICE, authenticator, Readiness({}), lifespan=lifespan, docs=settings.docs)
    app.state.stopping.then(parts.streams.end_streams)
    app.state.parts = parts
    app.add_exception_handler(ClientError, not_done)
    show_problems(app)
    admit_visitors(app, settings, parts.streams.changes.announce)
    add_routes(app, *(page.router for page in _PAGES))
    return app
