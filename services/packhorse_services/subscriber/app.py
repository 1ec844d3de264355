"""The subscriber's HTTP application: its content to read, and the state of its lanes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request, Security
from pydantic import BaseModel, Field

from packhorse.blobs import routes as blob_routes
from packhorse.blobs.api import BlobStore
from packhorse.content import routes as content_routes
from packhorse.content.node import InvalidPath
from packhorse.db.connect import async_pool, connect
from packhorse.errors import PackhorseError
from packhorse.runtime.auth import Authenticator, require
from packhorse.runtime.http import create_app
from packhorse.runtime.problems import Kind, documented
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import LaneState
from packhorse_services.subscriber.assembly import Subscriber

_APPLICATION = "packhorse-subscriber-http"
_DESCRIPTION = """
One subscriber: the content that it has imported, read-only, and how far it is.

Content has the same URLs as at the author: `/content/…`, `/children/…`, `/binaries/…`.
"""
_PROBLEMS: dict[type[Exception], Kind] = {
    InvalidPath: Kind(422, "invalid-path", "This is no path"),
}


class LaneStatus(BaseModel):
    """One publisher agent at this subscriber; times are milliseconds since 1970, 0 for none."""

    publisher_agent: str
    state: LaneState
    offset: int = Field(description="The last processed offset, -1 before the first")
    journal_id: str
    epoch: int
    retries: int = Field(description="Failed attempts of the package in front")
    last_error: str
    next_attempt_ms: int
    blocked_since_ms: int
    lag_entries: int | None = Field(
        description="Records of the log behind the offset, also other agents'; null: not known now"
    )
    lag_seconds: float = Field(description="Age of the package in front, 0 when there is none")


class LeaseStatus(BaseModel):
    """Who may import into this database."""

    held: bool = Field(description="Whether this worker may")
    epoch: int | None
    holder: str
    instance: str = Field(description="This worker")


class SubscriberStatus(BaseModel):
    """What the subscriber tells of itself."""

    subscriber: str
    editable: bool
    max_retries: int
    lease: LeaseStatus
    lanes: list[LaneStatus]


_router = APIRouter(route_class=StrictRoute, tags=["status"])


@_router.get(
    "/status",
    responses=documented(503),
    dependencies=[Security(require("queues:read"))],
)
async def get_status(request: Request) -> SubscriberStatus:
    """Return the state of every lane and of the lease."""
    subscriber: Subscriber = request.app.state.subscriber
    return await asyncio.to_thread(_status, subscriber)


def _status(subscriber: Subscriber) -> SubscriberStatus:
    try:
        end = subscriber.journal.bounds(subscriber.topics.package).next
    except PackhorseError:
        end = None
    lease, identity = subscriber.lease, subscriber.identity
    epoch = lease.epoch()
    return SubscriberStatus(
        subscriber=identity.subscriber,
        editable=identity.editable,
        max_retries=identity.max_retries,
        lease=LeaseStatus(
            held=epoch is not None,
            epoch=epoch,
            holder=lease.holder(),
            instance=identity.instance,
        ),
        lanes=[
            LaneStatus(
                publisher_agent=state.publisher_agent,
                state=state.state,
                offset=state.offset,
                journal_id=state.journal_id,
                epoch=state.epoch,
                retries=state.retries,
                last_error=state.last_error,
                next_attempt_ms=state.next_attempt_ms,
                blocked_since_ms=state.blocked_since_ms,
                lag_entries=None if end is None else max(0, end - 1 - state.offset),
                lag_seconds=report.lag_s(subscriber.clock.wall_ms()),
            )
            for report in subscriber.reports
            for state in [report.state]
        ],
    )


def create(
    subscriber: Subscriber,
    database_url: str,
    blobs: BlobStore,
    authenticator: Authenticator,
    *,
    docs: bool = False,
) -> FastAPI:
    """Return the app; it opens its database pool when it starts."""
    pool = async_pool(database_url, _APPLICATION)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await pool.open()
        try:
            yield
        finally:
            await pool.close()

    def database_answers() -> None:
        with connect(database_url, _APPLICATION, autocommit=True) as connection:
            connection.execute("SELECT FROM content.node LIMIT 1")

    def journal_answers() -> None:
        subscriber.journal.bounds(subscriber.topics.package)

    app = create_app(
        title="packhorse subscriber",
        description=_DESCRIPTION,
        authenticator=authenticator,
        readiness={"database": database_answers, "journal": journal_answers, "blobs": blobs.check},
        lifespan=lifespan,
        problems=_PROBLEMS,
        docs=docs,
    )
    app.state.subscriber = subscriber
    content_routes.mount(app, pool, blob_routes.serve_blob)
    blob_routes.mount(app, blobs)
    app.include_router(_router)
    return app
