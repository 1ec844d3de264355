"""The content service's HTTP application."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from psycopg import Connection

from packhorse.blobs import archive_routes
from packhorse.blobs import routes as blob_routes
from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.bookkeeping.act_routes import act_router
from packhorse.content import digest_routes, subtree_routes
from packhorse.content import routes as reading
from packhorse.content.node import InvalidNode, InvalidPath
from packhorse.content.queries import Pool, ask, lifespan
from packhorse.db.blocking import in_blocking_code
from packhorse.db.connect import async_pool
from packhorse.db.prepare import prepare_database
from packhorse.db.transactions import as_bookkeeper
from packhorse.runtime.auth import Authenticator, authenticator_for
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.problems import ProblemKind
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.serve import configured, run_service
from packhorse.topology.own_cluster import InstanceProperties, join
from packhorse_services.content.http import file_routes, uploads
from packhorse_services.content.http import routes as writing
from packhorse_services.content.settings import Settings

_APPLICATION = "packhorse-content"
_DESCRIPTION = """
The author's content: nodes by path, their children, and binaries by digest.

A URL is the name of a view followed by the node's path: the node `/site/home` is at
`/content/site/home`, what lies below it at `/children/site/home`, its binaries at
`/binaries/site/home?name=…`. Names are percent-encoded one by one; nothing is normalised.
"""
_PROBLEMS: dict[type[Exception], ProblemKind] = {
    InvalidPath: ProblemKind(422, "invalid-path", "This is no path"),
    InvalidNode: ProblemKind(422, "invalid-node", "No repository holds such a node"),
}


_SERVICE = ServiceDescription(
    "packhorse content",
    _DESCRIPTION,
    problems=_PROBLEMS,
    documentation=("packhorse.content", __package__),
)


def run() -> None:
    """Serve with the settings of the environment until the process is asked to end."""
    settings = configured(Settings)
    url = settings.database_url.get_secret_value()
    prepare_database(url, _APPLICATION)
    cluster = join(url, settings, InstanceProperties("content", endpoint=settings.endpoint))
    app = create(
        url,
        open_blobs(settings.blobs_url),
        authenticator_for(settings),
        max_blob_bytes=settings.max_blob_bytes,
        docs=settings.docs,
    )
    run_service(app, settings, (cluster,))


def create(
    database_url: str,
    blobs: BlobStore,
    authenticator: Authenticator,
    *,
    max_blob_bytes: int,
    docs: bool = False,
) -> FastAPI:
    """Return the app; it opens its database pool when it starts."""
    pool = async_pool(database_url, _APPLICATION)
    app = create_app(
        _SERVICE,
        authenticator,
        Readiness({"database": partial(ask, database_url, _APPLICATION), "blobs": blobs.check}),
        lifespan=partial(lifespan, pool),
        docs=docs,
    )
    reading.mount(app, pool, blob_routes.serve_blob)
    blob_routes.mount(app, blobs)
    subtree_routes.mount(app)
    digest_routes.mount(app)
    archive_routes.mount(app)
    writing.mount(app)
    uploads.mount(app, max_blob_bytes)
    file_routes.mount(app)
    add_routes(app, act_router(_ask_for_acts))
    return app


async def _ask_for_acts(
    request: Request, question: Callable[[Connection], list[tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    pool: Pool = request.app.state.content_pool
    async with as_bookkeeper(pool) as conn:
        return await in_blocking_code(conn, question)
