"""A publisher put together: its parts, its HTTP service, and what makes it ready."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock
from packhorse.db.connect import async_pool, open_pool
from packhorse.messaging.api import Journal, TopicMissing
from packhorse.packages.build import PathMissing, PathRefused
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import create_app
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.problems import Kind
from packhorse.wire.topics import Topics
from packhorse_services.publisher import queue_routes, routes
from packhorse_services.publisher.clear import BeyondNewest, Clearing, HeadMoved, NotEditable
from packhorse_services.publisher.collaborators import Collaborators
from packhorse_services.publisher.delivery import Delivery
from packhorse_services.publisher.distribute import Packer
from packhorse_services.publisher.distributions import Distributions, Pool
from packhorse_services.publisher.exporter import Exporter
from packhorse_services.publisher.housekeeping import Housekeeping
from packhorse_services.publisher.idempotency import KeyInProgress, KeyReused
from packhorse_services.publisher.publishing import OutboxFull, Patience, Publishing
from packhorse_services.publisher.queues.cache import QueueCache
from packhorse_services.publisher.queues.errors import ErrorQueues
from packhorse_services.publisher.queues.feed import QueueFeed
from packhorse_services.publisher.queues.follower import TopicFollower
from packhorse_services.publisher.queues.queue import Queues, UnknownSubscriber
from packhorse_services.publisher.queues.subscribers import Subscribers
from packhorse_services.publisher.settings import Settings
from packhorse_services.publisher.slot import Slot, slot_connection

_UPKEEP_S = 15.0
_TIDY_S = 300.0

DESCRIPTION = "Distributes content of the author to all subscribers, and shows their queues."

PROBLEMS: Mapping[type[Exception], Kind] = {
    PathMissing: Kind(404, "path-missing", "A path does not exist at the author"),
    PathRefused: Kind(403, "path-refused", "A path lies outside the token's roots"),
    KeyReused: Kind(422, "key-reused", "The idempotency key belongs to another request"),
    KeyInProgress: Kind(409, "key-in-progress", "The first request is under way", 1),
    OutboxFull: Kind(503, "journal-away", "The journal is away and the outbox is full", 5),
    TopicMissing: Kind(503, "topic-missing", "The journal lacks a topic", 30),
    UnknownSubscriber: Kind(404, "unknown-subscriber", "No such subscriber"),
    NotEditable: Kind(409, "not-editable", "The subscriber's queue can't be cleared"),
    HeadMoved: Kind(412, "head-moved", "The queue has changed since you read it"),
    BeyondNewest: Kind(422, "beyond-newest", "The offset is above the newest in the queue"),
}


@dataclass(frozen=True)
class Backends:
    """What a publisher stands on."""

    journal: Journal
    blobs: BlobStore
    authenticator: Authenticator
    clock: Clock


@dataclass(frozen=True)
class Publisher:
    """A publisher that is put together and not started."""

    app: FastAPI
    components: Sequence[Component]


def publisher(settings: Settings, backends: Backends) -> Publisher:
    """Put a publisher together; nothing connects before it is started."""
    journal, clock = backends.journal, backends.clock
    topics = Topics.prefixed(settings.topic_prefix)
    url = settings.database_url.get_secret_value()
    tasks = open_pool(url, "publisher-tasks", size=2)
    routes_pool = async_pool(url, "publisher-routes")
    exporter = Exporter(_publishing(settings, backends, topics), clock)
    reading = _reading(settings, backends, topics)
    collaborators = Collaborators(
        exporter=exporter,
        queues=reading.queues,
        distributions=Distributions(routes_pool, reading.queues, reading.announcements),
        clearing=Clearing(journal, topics.command, reading.queues, clock),
        tasks=tasks,
    )
    housekeeping = Housekeeping(
        tasks, journal, topics.package, keep_keys_s=settings.idempotency_hours * 3600
    )
    readiness: dict[str, Callable[[], None]] = {
        "database": partial(_ask_database, tasks),
        "journal": partial(_ask_journal, journal, topics.package),
        "subscribers": reading.announcements.check,
        "statuses": reading.statuses.check,
    }
    return Publisher(
        app=_app(settings, backends, collaborators, readiness, routes_pool),
        components=(
            _Closed(tasks),
            reading.announcements,
            reading.statuses,
            reading.queues.feed,
            exporter,
            Periodic("queue-upkeep", _UPKEEP_S, reading.queues.keep_up, clock=clock),
            Periodic("housekeeping", _TIDY_S, housekeeping.tidy, clock=clock),
        ),
    )


@dataclass(frozen=True)
class _Closed:
    """Closes a pool when all that use it have stopped."""

    pool: ConnectionPool[Connection]

    def start(self) -> None:
        """Do nothing: the pool connects when it is first used."""

    def stop(self, timeout: float) -> None:
        """Close it."""
        self.pool.close(timeout)


@dataclass(frozen=True)
class _Reading:
    """The half of a publisher that reads."""

    queues: Queues
    announcements: TopicFollower
    statuses: TopicFollower


def _reading(settings: Settings, backends: Backends, topics: Topics) -> _Reading:
    journal, clock = backends.journal, backends.clock
    subscribers, errors = Subscribers(clock), ErrorQueues(settings.agent)
    cache, most = QueueCache(settings.agent), settings.cache_bytes
    feed = QueueFeed(journal, topics.package, cache, clock=clock, max_bytes=most)
    return _Reading(
        queues=Queues(feed, subscribers, errors, clock),
        announcements=TopicFollower(journal, topics.discovery, subscribers.note, clock),
        statuses=TopicFollower(journal, topics.status, errors.note, clock),
    )


def _publishing(settings: Settings, backends: Backends, topics: Topics) -> Publishing:
    url = settings.database_url.get_secret_value()
    return Publishing(
        Slot(partial(slot_connection, url, f"publisher-slot-{settings.agent}")),
        Packer(backends.blobs, settings.agent, settings.instance, backends.clock),
        Delivery(backends.journal, topics.package),
        clock=backends.clock,
        patience=Patience(
            outbox_packages=settings.outbox_packages, outbox_age_s=settings.outbox_age_s
        ),
    )


def _app(
    settings: Settings,
    backends: Backends,
    collaborators: Collaborators,
    readiness: Mapping[str, Callable[[], None]],
    pool: Pool,
) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with pool:
            yield

    app = create_app(
        title="packhorse publisher",
        description=DESCRIPTION,
        authenticator=backends.authenticator,
        readiness=readiness,
        lifespan=lifespan,
        problems=PROBLEMS,
        docs=settings.docs,
    )
    app.state.publisher = collaborators
    app.include_router(routes.router)
    app.include_router(queue_routes.router)
    return app


def _ask_database(pool: ConnectionPool[Connection]) -> None:
    with pool.connection() as connection:
        connection.execute("SELECT 1")


def _ask_journal(journal: Journal, topic: str) -> None:
    journal.bounds(topic)
