"""The content service's HTTP application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from packhorse.blobs import routes as blob_routes
from packhorse.blobs.api import BlobStore
from packhorse.content import routes as reading
from packhorse.content.node import InvalidNode, InvalidPath
from packhorse.content.queries import Pool
from packhorse.db.connect import async_pool, connect
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import create_app
from packhorse.runtime.problems import Kind
from packhorse_services.content import routes as writing
from packhorse_services.content import uploads

_APPLICATION = "packhorse-content"
_DESCRIPTION = """
The author's content: nodes by path, their children, and binaries by digest.

A URL is the name of a view followed by the node's path: the node `/site/home` is at
`/content/site/home`, what lies below it at `/children/site/home`, its binaries at
`/binaries/site/home?name=…`. Names are percent-encoded one by one; nothing is normalised.
"""
_PROBLEMS: dict[type[Exception], Kind] = {
    InvalidPath: Kind(422, "invalid-path", "This is no path"),
    InvalidNode: Kind(422, "invalid-node", "No repository holds such a node"),
}


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
        title="packhorse content",
        description=_DESCRIPTION,
        authenticator=authenticator,
        readiness={"database": partial(_ask, database_url), "blobs": blobs.check},
        lifespan=partial(_lifespan, pool),
        problems=_PROBLEMS,
        docs=docs,
    )
    reading.mount(app, pool, blob_routes.serve_blob)
    blob_routes.mount(app, blobs)
    writing.mount(app)
    uploads.mount(app, max_blob_bytes)
    return app


@asynccontextmanager
async def _lifespan(pool: Pool, _: FastAPI) -> AsyncIterator[None]:
    await pool.open()
    try:
        yield
    finally:
        await pool.close()


def _ask(database_url: str) -> None:
    """Raise unless the database answers."""
    with connect(database_url, _APPLICATION, autocommit=True) as connection:
        connection.execute("SELECT FROM content.node LIMIT 1")
