"""A publisher's HTTP service: its routes, its errors, its lifespan."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from packhorse.messaging.api import TopicMissing
from packhorse.messaging.deduplicated import DuplicateUnknown
from packhorse.messaging.deduplication import ProducerExpired, ProducerFenced
from packhorse.packages.build import PathMissing, PathPresent, PathRefused
from packhorse.runtime.http import create_app
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.problems import Kind
from packhorse.runtime.stopping import telling
from packhorse.runtime.streams import StreamsEnded, TooManyStreams
from packhorse_services.publisher import (
    command_routes,
    distribution_list_routes,
    error_routes,
    event_routes,
    package_routes,
    producer_routes,
    queue_routes,
    routes,
)
from packhorse_services.publisher.admission import QueueFull
from packhorse_services.publisher.assembly import Assembled, Backends, assemble
from packhorse_services.publisher.commands.clearing import BeyondNewest, HeadMoved, NotEditable
from packhorse_services.publisher.commands.issuing import NotStopped, OutsideLog, UnknownCommand
from packhorse_services.publisher.delivery import TopicTooSmall
from packhorse_services.publisher.dry_run import TooManyDryRuns
from packhorse_services.publisher.idempotency import KeyInProgress, KeyReused
from packhorse_services.publisher.line import TooManyWaiting
from packhorse_services.publisher.live.hub import NoEventsYet
from packhorse_services.publisher.outcomes.error_queue import NotInErrorQueue, PathsUnknown
from packhorse_services.publisher.prepared import (
    PackageIdUsed,
    StalePackage,
    StoredPackageDiffers,
    StoredPackageMissing,
)
from packhorse_services.publisher.producer_registry import (
    BadProducerName,
    ProducerInUse,
    TooManyProducers,
    UnknownProducer,
)
from packhorse_services.publisher.producers import EarlierRefused, SequencePassed
from packhorse_services.publisher.publishing import OutboxFull
from packhorse_services.publisher.queues.queue import UnknownSubscriber
from packhorse_services.publisher.settings import Settings

__all__ = ["Backends", "Publisher", "publisher"]

DESCRIPTION = "Distributes content of the author to all subscribers, and shows their queues."

PROBLEMS: Mapping[type[Exception], Kind] = {
    PathMissing: Kind(404, "path-missing", "A path does not exist at the author"),
    PathPresent: Kind(409, "path-present", "The author has a path again that is to be deleted"),
    PathRefused: Kind(403, "path-refused", "A path lies outside the token's roots"),
    KeyReused: Kind(422, "key-reused", "The idempotency key belongs to another request"),
    KeyInProgress: Kind(409, "key-in-progress", "The first request is under way", 1),
    OutboxFull: Kind(503, "journal-away", "The journal is away and the outbox is full", 5),
    TopicTooSmall: Kind(503, "topic-too-small", "The package topic refuses a package", 30),
    QueueFull: Kind(429, "queue-full", "A subscriber is too far behind", 30),
    TooManyWaiting: Kind(429, "too-many-waiting", "Too many requests wait already", 2),
    TooManyDryRuns: Kind(429, "too-many-dry-runs", "As many dry runs are under way as may", 5),
    TopicMissing: Kind(503, "topic-missing", "The journal lacks a topic", 30),
    UnknownSubscriber: Kind(404, "unknown-subscriber", "No such subscriber"),
    NotEditable: Kind(409, "not-editable", "The subscriber's queue can't be cleared"),
    HeadMoved: Kind(412, "head-moved", "The queue has changed since you read it"),
    BeyondNewest: Kind(422, "beyond-newest", "The offset is above the newest in the queue"),
    TooManyStreams: Kind(429, "too-many-streams", "As many follow the events as may", 10),
    NoEventsYet: Kind(503, "no-events-yet", "The events can't be followed right now", 2),
    StreamsEnded: Kind(503, "streams-ended", "The publisher is about to end", 2),
    NotInErrorQueue: Kind(404, "not-in-error-queue", "No such entry in the error queue"),
    PathsUnknown: Kind(409, "paths-unknown", "What the package was about is not known any more"),
    UnknownCommand: Kind(404, "unknown-command", "No such command"),
    NotStopped: Kind(409, "not-stopped", "The subscriber is not stopped"),
    OutsideLog: Kind(422, "outside-log", "The offset lies outside the log"),
    UnknownProducer: Kind(404, "unknown-producer", "No such producer"),
    BadProducerName: Kind(422, "bad-producer-name", "The producer can't have this name"),
    TooManyProducers: Kind(429, "too-many-producers", "As many producers are known as may", 60),
    ProducerInUse: Kind(503, "producer-in-use", "Requests of the producer are under way", 1),
    ProducerExpired: Kind(409, "producer-unknown", "The producer's epoch is not known"),
    ProducerFenced: Kind(409, "producer-fenced", "The producer was registered anew"),
    DuplicateUnknown: Kind(503, "duplicate-unknown", "Whether it is published is unknown", 1),
    EarlierRefused: Kind(503, "earlier-refused", "An earlier request was refused", 1),
    StalePackage: Kind(409, "stale-package", "The package may be older than a later one"),
    PackageIdUsed: Kind(409, "package-id-used", "The package id belongs to another package"),
    StoredPackageMissing: Kind(404, "stored-package-missing", "The body is not in the blob store"),
    StoredPackageDiffers: Kind(422, "stored-package-differs", "The body has another length"),
    SequencePassed: Kind(410, "sequence-passed", "A later sequence is published already"),
}


@dataclass(frozen=True)
class Publisher:
    """A publisher that is put together and not started."""

    app: FastAPI
    components: Sequence[Component]


def publisher(settings: Settings, backends: Backends) -> Publisher:
    """Put a publisher together; nothing connects before it is started."""
    parts = assemble(settings, backends)
    return Publisher(_app(settings, backends, parts), parts.components)


def _app(settings: Settings, backends: Backends, parts: Assembled) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with parts.routes_pool, telling(app.state.stopping, end_waiting):
            yield

    def end_waiting() -> None:
        parts.collaborators.hub.end_streams()
        parts.collaborators.distributions.end_waits()

    app = create_app(
        title="packhorse publisher",
        description=DESCRIPTION,
        authenticator=backends.authenticator,
        readiness=parts.readiness,
        lifespan=lifespan,
        problems=PROBLEMS,
        docs=settings.docs,
        agent=settings.agent,
    )
    app.state.publisher = parts.collaborators
    for module in (
        *(routes, queue_routes, error_routes),
        *(producer_routes, event_routes, command_routes),
        *(distribution_list_routes, package_routes),
    ):
        app.include_router(module.router)
    return app
