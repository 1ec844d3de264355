"""The service of reports put together, and `packhorse-pipeline serve`."""

from collections.abc import Mapping
from typing import Annotated

import typer
from fastapi import FastAPI

from packhorse.runtime.auth import Authenticator, authenticator_for
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.problems import ProblemKind
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.serve import configured, run_service
from packhorse_services.pipeline.errors import SchemaChanged
from packhorse_services.pipeline.reports import routes
from packhorse_services.pipeline.reports.reading import ReportTables
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location

DESCRIPTION = "Shows what the pipeline has measured: latency, throughput, backlog, failures."
_PROBLEMS: Mapping[type[Exception], ProblemKind] = {
    SchemaChanged: ProblemKind(503, "schema-changed", "The tables are those of another version", 30)
}
_SERVICE = ServiceDescription(
    "packhorse pipeline",
    DESCRIPTION,
    problems=_PROBLEMS,
    documentation=(__package__,),
)


def reports_app(location: Location, authenticator: Authenticator, *, docs: bool = False) -> FastAPI:
    """Return the service; it opens nothing before it is asked."""
    tables = ReportTables(location)
    app = create_app(_SERVICE, authenticator, Readiness({"tables": tables.check}), docs=docs)
    app.state.tables = tables
    add_routes(app, routes.router)
    return app


def serve(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Instead of PACKHORSE_PORT; 0: a free one.")
    ] = None,
) -> None:
    """Serve reports over HTTP until it is stopped."""
    settings = configured(Settings)
    location = Location.parse(settings.tables_url, only_read=True)
    app = reports_app(location, authenticator_for(settings), docs=settings.docs)
    run_service(app, settings, port=port)
