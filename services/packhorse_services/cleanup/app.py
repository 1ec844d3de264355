"""A cleanup service put together: its parts, its HTTP service, and what makes it ready."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from packhorse.blobs.api import BlobStore
from packhorse.db.pool import Lender, Share, SharedPool, ask
from packhorse.db.transactions import writing
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import JobsHost, open_jobs
from packhorse.jobs.work.heartbeat import WorkerSettings
from packhorse.messaging.api import Journal
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service, ServiceDescription, add_routes, create_app
from packhorse.runtime.metrics import CLEANUP_LAST_SUCCESS, report
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.problems import ProblemKind
from packhorse.runtime.readiness import Readiness
from packhorse.topology.leader import LeaderOnly
from packhorse.topology.own_cluster import OwnCluster
from packhorse_services.cleanup import journal_routes, ledger, routes
from packhorse_services.cleanup.keeping import (
    Keeping,
    NotInLog,
    RetentionUnfit,
    WouldLosePackages,
)
from packhorse_services.cleanup.ledger import RunWaits
from packhorse_services.cleanup.records import Records
from packhorse_services.cleanup.runner import QUEUE, RUN, Runner, schedule_of
from packhorse_services.cleanup.settings import Settings
from packhorse_services.cleanup.sweep import Sweep

_LOOK_S = 15.0
_WORK = WorkerSettings(poll_s=5.0)
"""Runs are rare, and a hint comes with each."""
_CONNECTIONS = 4
"""For routes, readiness and what is shown."""
LEADER_TASK = "cleanup"
"""Of the instance that asks the journal to forget; runs are jobs."""

DESCRIPTION = (
    "Says what the journal keeps, and removes packages from the blob store that it has forgotten."
)
_PROBLEMS: Mapping[type[Exception], ProblemKind] = {
    RunWaits: ProblemKind(409, "run-waits", "A cleanup run waits already"),
    RetentionUnfit: ProblemKind(409, "retention-unfit", "A topic would keep less than it must"),
    WouldLosePackages: ProblemKind(
        409, "would-lose-packages", "Subscribers have not imported what would go"
    ),
    NotInLog: ProblemKind(422, "not-in-log", "The log does not hold this offset"),
}
_SERVICE = ServiceDescription(
    "packhorse cleanup", DESCRIPTION, problems=_PROBLEMS, documentation=(__package__,)
)


def sweep_of(settings: Settings, journal: Journal, blobs: BlobStore) -> Sweep:
    """Return what does the runs."""
    topic = settings.topics.package
    return Sweep(journal, topic, blobs, timedelta(hours=settings.orphan_grace_hours))


def cleanup_service(
    settings: Settings,
    journal: Journal,
    blobs: BlobStore,
    authenticator: Authenticator,
    cluster: OwnCluster | None = None,
) -> Service:
    """Put a cleanup service together; nothing connects before it is started.

    Runs are done by any instance; the one that has the leader task in `cluster` asks the journal to
    forget, or each one without a cluster.
    """
    report("packhorse_cleanup_runs", "packhorse_cleanup_removed")
    pool = SharedPool(settings.database_url.get_secret_value(), "cleanup")
    share = pool.share(_CONNECTIONS)
    leader_task = None if cluster is None else cluster.leader_task(LEADER_TASK, share.connection)
    runs = _runs(settings, sweep_of(settings, journal, blobs), cluster, pool)
    retention = Periodic(
        "retention", settings.retention_seconds, partial(_retain, journal, leader_task)
    )
    last_success = Periodic("last-success", _LOOK_S, partial(_show_success, share), at_once=True)
    readiness = _readiness(settings, share, journal, blobs)
    app = create_app(_SERVICE, authenticator, readiness, docs=settings.docs)
    add_routes(app, routes.router, journal_routes.router)
    app.state.keeping = Keeping(journal, settings.topics, settings.keep_packages_hours)
    app.state.pool, app.state.records = share, Records(journal, blobs)
    app.state.application = "cleanup" if cluster is None else cluster.discovery.instance_id
    taking_part = () if cluster is None else (cluster,)
    return Service(app, (pool, *taking_part, last_success, runs, retention))


def _readiness(settings: Settings, share: Share, journal: Journal, blobs: BlobStore) -> Readiness:
    answers = partial(_ask_journal, journal, settings.topics.package)
    return Readiness({"database": partial(ask, share), "journal": answers, "blobs": blobs.check})


def _runs(
    settings: Settings, sweep: Sweep, cluster: OwnCluster | None, pool: SharedPool
) -> JobsHost:
    url = settings.database_url.get_secret_value()
    consumers = Consumers()
    consumers.add(RUN, Runner(url, sweep))
    declared = Declared([QUEUE], [schedule_of(settings.when)])
    return open_jobs(
        url, cluster, consumers=consumers, declared=declared, settings=_WORK, pool=pool
    )


def _show_success(pool: Lender) -> None:
    """Show what the database knows: the same on each replica, and after a restart."""
    with writing(pool.connection) as connection:
        ended = ledger.last_success(connection)
    if ended is not None:
        CLEANUP_LAST_SUCCESS.set(ended)
        report("packhorse_cleanup_last_success_seconds")


def _retain(journal: Journal, leader_task: LeaderOnly | None) -> None:
    if leader_task is None or leader_task.take() is not None:
        journal.enforce_retention()


def _ask_journal(journal: Journal, topic: str) -> None:
    journal.bounds(topic)
