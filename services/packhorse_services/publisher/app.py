"""A publisher's HTTP service: its routes, its errors, its lifespan."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

from packhorse.messaging.api import TopicMissing
from packhorse.messaging.deduplicated import DuplicateUnknown
from packhorse.messaging.deduplication import ProducerExpired, ProducerFenced
from packhorse.packages.build import PathMissing, PathPresent, PathRefused
from packhorse.runtime.direct_routes import serve_directly
from packhorse.runtime.feed import StreamsEnded, TooManyStreams
from packhorse.runtime.http import Service, ServiceDescription, add_routes, create_app
from packhorse.runtime.problems import ProblemKind
from packhorse.runtime.readiness import Readiness
from packhorse_services.publisher.assembly.publisher_parts import Backends, PublisherParts
from packhorse_services.publisher.commands.clearing import BeyondNewest, HeadMoved, NotEditable
from packhorse_services.publisher.commands.issuing import (
    ClearOutsideLog,
    NotStopped,
    UnknownCommand,
)
from packhorse_services.publisher.http import (
    batch_routes,
    command_routes,
    distribution_routes,
    error_routes,
    error_selection_routes,
    event_routes,
    package_routes,
    producer_routes,
    queue_routes,
    release_routes,
)
from packhorse_services.publisher.http.redistribution import AlreadyRedistributed
from packhorse_services.publisher.live.event_hub import NoEventsYet
from packhorse_services.publisher.outbox.idempotency import KeyInProgress, KeyReused
from packhorse_services.publisher.outbox.journal_appender import TopicTooSmall
from packhorse_services.publisher.outbox.producer_registry import (
    BadProducerName,
    ProducerInUse,
    TooManyProducers,
    UnknownProducer,
)
from packhorse_services.publisher.outbox.producers import EarlierRefused, SequencePassed
from packhorse_services.publisher.outcomes.error_queue import NotInErrorQueue, PathsUnknown
from packhorse_services.publisher.publish.admission import QueueFull
from packhorse_services.publisher.publish.dry_run import TooManyDryRuns
from packhorse_services.publisher.publish.prepared import (
    PackageIdUsed,
    StalePackage,
    StoredPackageDiffers,
    StoredPackageMissing,
)
from packhorse_services.publisher.publish.publish_queue import TooManyWaiting
from packhorse_services.publisher.publish.publishing import OutboxFull
from packhorse_services.publisher.queues.known_subscribers import SubscriberLive
from packhorse_services.publisher.queues.queue import UnknownSubscriber
from packhorse_services.publisher.releases.contents import (
    ReleaseEnded,
    ReleaseExists,
    ReleaseRefused,
    TooManyReleases,
    UnknownRelease,
)
from packhorse_services.publisher.settings import Settings

__all__ = ["Backends", "publisher"]

DESCRIPTION = "Distributes content of the author to all subscribers, and shows their queues."

PROBLEMS: Mapping[type[Exception], ProblemKind] = {
    PathMissing: ProblemKind(404, "path-missing", "A path does not exist at the author"),
    PathPresent: ProblemKind(
        409, "path-present", "The author has a path again that is to be deleted"
    ),
    PathRefused: ProblemKind(403, "path-refused", "A path lies outside the token's roots"),
    KeyReused: ProblemKind(422, "key-reused", "The idempotency key belongs to another request"),
    KeyInProgress: ProblemKind(409, "key-in-progress", "The first request is under way", 1),
    OutboxFull: ProblemKind(503, "journal-away", "The journal is away and the outbox is full", 5),
    TopicTooSmall: ProblemKind(503, "topic-too-small", "The package topic refuses a package", 30),
    QueueFull: ProblemKind(429, "queue-full", "A subscriber is too far behind", 30),
    TooManyWaiting: ProblemKind(429, "too-many-waiting", "Too many requests wait already", 2),
    TooManyDryRuns: ProblemKind(
        429, "too-many-dry-runs", "As many dry runs are under way as may", 5
    ),
    TopicMissing: ProblemKind(503, "topic-missing", "The journal lacks a topic", 30),
    UnknownSubscriber: ProblemKind(404, "unknown-subscriber", "No such subscriber"),
    NotEditable: ProblemKind(409, "not-editable", "The subscriber's queue can't be cleared"),
    HeadMoved: ProblemKind(412, "head-moved", "The queue has changed since you read it"),
    BeyondNewest: ProblemKind(422, "beyond-newest", "The offset is above the end of the log"),
    TooManyStreams: ProblemKind(429, "too-many-streams", "As many follow the events as may", 10),
    NoEventsYet: ProblemKind(503, "no-events-yet", "The events can't be followed right now", 2),
    StreamsEnded: ProblemKind(503, "streams-ended", "The publisher is about to end", 2),
    NotInErrorQueue: ProblemKind(404, "not-in-error-queue", "No such entry in the error queue"),
    PathsUnknown: ProblemKind(
        409, "paths-unknown", "What the package was about is not known any more"
    ),
    AlreadyRedistributed: ProblemKind(
        409, "already-redistributed", "The entry was distributed again before"
    ),
    SubscriberLive: ProblemKind(409, "subscriber-live", "The subscriber announces itself"),
    UnknownCommand: ProblemKind(404, "unknown-command", "No such command"),
    NotStopped: ProblemKind(409, "not-stopped", "The subscriber is not stopped"),
    ClearOutsideLog: ProblemKind(422, "outside-log", "The offset lies outside the log"),
    UnknownProducer: ProblemKind(404, "unknown-producer", "No such producer"),
    BadProducerName: ProblemKind(422, "bad-producer-name", "The producer can't have this name"),
    TooManyProducers: ProblemKind(
        429, "too-many-producers", "As many producers are known as may", 60
    ),
    ProducerInUse: ProblemKind(503, "producer-in-use", "Requests of the producer are under way", 1),
    ProducerExpired: ProblemKind(409, "producer-unknown", "The producer's epoch is not known"),
    ProducerFenced: ProblemKind(409, "producer-fenced", "The producer was registered anew"),
    DuplicateUnknown: ProblemKind(
        503, "duplicate-unknown", "Whether it is published is unknown", 1
    ),
    EarlierRefused: ProblemKind(503, "earlier-refused", "An earlier request was refused", 1),
    StalePackage: ProblemKind(409, "stale-package", "The package may be older than a later one"),
    PackageIdUsed: ProblemKind(409, "package-id-used", "The package id belongs to another package"),
    StoredPackageMissing: ProblemKind(
        404, "stored-package-missing", "The body is not in the blob store"
    ),
    StoredPackageDiffers: ProblemKind(422, "stored-package-differs", "The body has another length"),
    UnknownRelease: ProblemKind(404, "unknown-release", "No such release"),
    ReleaseEnded: ProblemKind(409, "release-ended", "The release is sent or cancelled"),
    ReleaseExists: ProblemKind(409, "release-exists", "An open release has this name"),
    ReleaseRefused: ProblemKind(422, "release-refused", "A release can't be like that"),
    TooManyReleases: ProblemKind(429, "too-many-releases", "As many are open as may be", 60),
    SequencePassed: ProblemKind(410, "sequence-passed", "A later sequence is published already"),
}


def publisher(settings: Settings, backends: Backends) -> Service:
    """Put a publisher together; nothing connects before it is started."""
    parts = PublisherParts(settings, backends)
    return Service(_app(settings, backends, parts), parts.components)


_SERVICE = ServiceDescription(
    "packhorse publisher", DESCRIPTION, problems=PROBLEMS, documentation=(f"{__package__}.http",)
)

_ROUTERS = (
    *(distribution_routes.router, queue_routes.router, error_routes.router),
    *(error_selection_routes.router, producer_routes.router, event_routes.router),
    *(command_routes.router, package_routes.router, release_routes.router),
)


def _app(settings: Settings, backends: Backends, parts: PublisherParts) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with parts.routes_pool:
            yield

    app = create_app(
        _SERVICE,
        backends.authenticator,
        Readiness(parts.readiness, warnings=parts.warnings),
        lifespan=lifespan,
        docs=settings.docs,
        agent=settings.agent,
    )
    app.state.stopping.then(parts.collaborators.hub.end_streams)
    app.state.stopping.then(parts.collaborators.distributions.end_waits)
    app.state.publisher = parts.collaborators
    add_routes(app, *_ROUTERS)
    serve_directly(app, distribution_routes.router, [distribution_routes.distribute])
    batch_routes.mount(app)
    return app
