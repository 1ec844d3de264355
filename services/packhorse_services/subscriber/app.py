"""The subscriber's HTTP application: its content to read, and the state of its subscriptions."""

import asyncio
from datetime import datetime
from functools import partial

from fastapi import APIRouter, FastAPI, Request, Security
from pydantic import BaseModel, Field

from packhorse.blobs import archive_routes
from packhorse.blobs import routes as blob_routes
from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock
from packhorse.content import digest_routes, subtree_routes
from packhorse.content import routes as content_routes
from packhorse.content.node import InvalidPath
from packhorse.content.queries import ask, lifespan
from packhorse.db.connect import async_pool
from packhorse.errors import PackhorseError
from packhorse.runtime.auth import Authenticator, require
from packhorse.runtime.http import ServiceDescription, add_routes, create_app
from packhorse.runtime.moments import time_of
from packhorse.runtime.problems import ProblemKind, documented
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.validation import StrictRoute
from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from packhorse_services.subscriber.assembly import SubscriberProgram

_APPLICATION = "packhorse-subscriber-http"
_DESCRIPTION = """
One subscriber: the content that it has imported, read-only, and how far it is.

Content has the same URLs as at the author: `/content/…`, `/children/…`, `/binaries/…`.
"""
_PROBLEMS: dict[type[Exception], ProblemKind] = {
    InvalidPath: ProblemKind(422, "invalid-path", "This is no path"),
}


class SubscriptionStatus(BaseModel):
    """One publisher agent at this subscriber."""

    publisher_agent: str
    state: SubscriptionState
    offset: int = Field(description="The last processed offset, -1 before the first")
    journal_id: str
    epoch: int
    retries: int = Field(description="Failed attempts of the package in front")
    last_error: str
    next_attempt_at: datetime | None
    blocked_since: datetime | None
    incomplete: bool = Field(description="Whether it began behind packages that it has not got")
    behind_records: int | None = Field(
        description="Records of the log behind the offset, also other agents'; null: not known now"
    )
    lag_seconds: float | None = Field(
        description="Seconds since the package in front entered the journal, 0 when there is none; "
        "null: not known, as while it is stopped"
    )


class LeaseStatus(BaseModel):
    """Who may import into this database."""

    held: bool = Field(description="Whether this worker may")
    epoch: int | None
    holder: str
    instance: str = Field(description="This worker")


class SubscriberStatus(BaseModel):
    """What the subscriber reports about itself."""

    subscriber: str
    editable: bool
    max_retries: int
    include: list[str] = Field(description="The paths that it takes; none: all")
    exclude: list[str] = Field(description="The paths that it leaves out")
    map_paths: dict[str, str] = Field(
        description="Paths of the author, and where they lie here with all below them"
    )
    exclude_properties: list[str] = Field(
        description="Names of the properties that it leaves out; a `*` ends one for any rest"
    )
    lease: LeaseStatus
    subscriptions: list[SubscriptionStatus]


_router = APIRouter(route_class=StrictRoute, tags=["status"])


@_router.get(
    "/status",
    responses=documented(503),
    dependencies=[Security(require("queues:read"))],
)
async def get_status(request: Request) -> SubscriberStatus:
    """Return the state of every subscription and of the lease."""
    subscriber: SubscriberProgram = request.app.state.subscriber
    return await asyncio.to_thread(_status, subscriber)


def _status(subscriber: SubscriberProgram) -> SubscriberStatus:
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
        include=list(identity.path_filter.include),
        exclude=list(identity.path_filter.exclude),
        map_paths=dict(identity.path_filter.map_paths),
        exclude_properties=list(identity.path_filter.exclude_properties),
        lease=LeaseStatus(
            held=epoch is not None,
            epoch=epoch,
            holder=lease.holder(),
            instance=identity.instance,
        ),
        subscriptions=[
            _subscription_status(report, end, subscriber.clock) for report in subscriber.reports
        ],
    )


def _subscription_status(
    report: SubscriptionReport, end: int | None, clock: Clock
) -> SubscriptionStatus:
    state = report.state
    return SubscriptionStatus(
        publisher_agent=state.publisher_agent,
        state=state.state,
        offset=state.offset,
        journal_id=state.journal_id,
        epoch=state.epoch,
        retries=state.retries,
        last_error=state.last_error,
        next_attempt_at=time_of(state.next_attempt_ms),
        blocked_since=time_of(state.blocked_since_ms),
        incomplete=state.incomplete,
        behind_records=None if end is None else max(0, end - 1 - state.offset),
        lag_seconds=report.lag_s(clock.wall_ms()),
    )


_SERVICE = ServiceDescription(
    "packhorse subscriber",
    _DESCRIPTION,
    problems=_PROBLEMS,
    documentation=("packhorse.content", __package__),
)


def create(
    subscriber: SubscriberProgram,
    database_url: str,
    blobs: BlobStore,
    authenticator: Authenticator,
    *,
    docs: bool = False,
) -> FastAPI:
    """Return the app; it opens its database pool when it starts."""
    pool = async_pool(database_url, _APPLICATION)
    app = create_app(
        _SERVICE,
        authenticator,
        _readiness(subscriber, database_url, blobs),
        lifespan=partial(lifespan, pool),
        docs=docs,
    )
    app.state.subscriber = subscriber
    content_routes.mount(app, pool, blob_routes.serve_blob)
    blob_routes.mount(app, blobs)
    subtree_routes.mount(app)
    digest_routes.mount(app)
    archive_routes.mount(app)
    add_routes(app, _router)
    return app


def _readiness(subscriber: SubscriberProgram, database_url: str, blobs: BlobStore) -> Readiness:
    def journal_answers() -> None:
        subscriber.journal.bounds(subscriber.topics.package)

    return Readiness(
        {
            "database": partial(ask, database_url, _APPLICATION),
            "blobs": blobs.check,
            "content": subscriber.catching_up.check,
        },
        warnings={"journal": journal_answers},
    )
