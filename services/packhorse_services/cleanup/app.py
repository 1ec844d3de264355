"""A cleanup service put together: its parts, its HTTP service, and what makes it ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from fastapi import FastAPI
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.blobs.api import BlobStore
from packhorse.db.connect import ClosesPool, ask, open_pool
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.host import open_jobs
from packhorse.messaging.api import Journal
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import create_app
from packhorse.runtime.lifecycle import Component
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.problems import Kind
from packhorse.topology.leader import LeaderOnly
from packhorse.topology.own_cluster import OwnCluster
from packhorse.wire.topics import Topics
from packhorse_services.cleanup import routes
from packhorse_services.cleanup.ledger import RunWaits
from packhorse_services.cleanup.runner import Runner
from packhorse_services.cleanup.schedule import QUEUE, RUN, schedule_of
from packhorse_services.cleanup.settings import Settings
from packhorse_services.cleanup.sweep import Sweep

DUTY = "cleanup"
"""Of the instance that tells the journal to forget; runs are jobs."""

Pool = ConnectionPool[Connection]

DESCRIPTION = "Removes packages from the blob store that the journal has forgotten."
_PROBLEMS: Mapping[type[Exception], Kind] = {
    RunWaits: Kind(409, "run-waits", "A cleanup run waits already")
}


@dataclass(frozen=True)
class CleanupService:
    """A service that is put together and not started."""

    app: FastAPI
    components: Sequence[Component]


def sweep_of(settings: Settings, journal: Journal, blobs: BlobStore) -> Sweep:
    """Return what does the runs."""
    topic = Topics.prefixed(settings.topic_prefix).package
    return Sweep(journal, topic, blobs, timedelta(hours=settings.orphan_grace_hours))


def cleanup_service(
    settings: Settings,
    journal: Journal,
    blobs: BlobStore,
    authenticator: Authenticator,
    cluster: OwnCluster | None = None,
) -> CleanupService:
    """Put a cleanup service together; nothing connects before it is started.

    Runs are done by any instance, the journal is told to forget by the one that has the duty in
    `cluster`; without a cluster, by each.
    """
    url = settings.database_url.get_secret_value()
    pool = open_pool(url, "cleanup-routes")
    duty = None if cluster is None else cluster.duty(DUTY, pool.connection)
    consumers = Consumers()
    consumers.add(RUN, Runner(url, sweep_of(settings, journal, blobs), cluster))
    runs = open_jobs(
        url,
        cluster,
        consumers=consumers,
        queues=[QUEUE],
        schedules=[schedule_of(settings.when)],
    )
    retention = Periodic("retention", settings.retention_seconds, partial(_retain, journal, duty))
    topic = Topics.prefixed(settings.topic_prefix).package
    app = create_app(
        title="packhorse cleanup",
        description=DESCRIPTION,
        authenticator=authenticator,
        readiness={
            "database": lambda: ask(pool),
            "journal": lambda: _ask_journal(journal, topic),
            "blobs": blobs.check,
        },
        problems=_PROBLEMS,
        docs=settings.docs,
    )
    app.state.pool = pool
    app.state.application = "cleanup" if cluster is None else cluster.discovery.instance_id
    app.include_router(routes.router)
    taking_part = () if cluster is None else (cluster,)
    return CleanupService(app, (ClosesPool(pool), *taking_part, runs, retention))


def _retain(journal: Journal, duty: LeaderOnly | None) -> None:
    if duty is None or duty.take() is not None:
        journal.enforce_retention()


def _ask_journal(journal: Journal, topic: str) -> None:
    journal.bounds(topic)
