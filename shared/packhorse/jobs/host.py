"""Events, jobs and schedules in one program: everything that it needs for its part in them.

    consumers = Consumers()
    consumers.add("images/thumbnail", make_thumbnail)
    host = open_jobs(url, cluster, consumers=consumers, declared=Declared([...], [...]))

Start the cluster before it. A database that goes away later ends nothing: all is tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self
from uuid import uuid4

from packhorse.db.connect import connect
from packhorse.db.engine import check_database_url
from packhorse.db.pool import Share, SharedPool
from packhorse.db.prepare import require_database
from packhorse.jobs import channels
from packhorse.jobs.consumers import Consumers, live_handled_topics
from packhorse.jobs.declaring import Declarations, Declared
from packhorse.jobs.events.bus import EventBus
from packhorse.jobs.events.receiver import Receiver
from packhorse.jobs.events.storing import store_event
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.ledger.departures import Departures
from packhorse.jobs.scheduling.scheduler import LEADER_TASK, Scheduler
from packhorse.jobs.store.leases import WorkerRun
from packhorse.jobs.work.claiming import Alone, InCluster, KnownInstances
from packhorse.jobs.work.heartbeat import DEFAULTS, WorkerSettings
from packhorse.jobs.work.worker import JobWorker, WorkerConnections
from packhorse.runtime.lifecycle import Component, Watched, stop_all
from packhorse.runtime.listen import Listener
from packhorse.topology import properties
from packhorse.topology.own_cluster import OwnCluster

LEADER_TASKS = (LEADER_TASK,)
"""Add these to the `InstanceProperties.leader_tasks` of a program with a cluster: who has them
fires schedules that only one instance fires."""

_OWN_CONNECTIONS = 6
"""For lease, claims, scheduler and declarations: never lent to consumers, who may take all of
theirs."""
_CLAIMS_S = 0.2
_NOTHING = Declared()


@dataclass(frozen=True, slots=True)
class JobsHost:
    """A component of components; what a program does with jobs beside consuming them."""

    jobs: Jobs
    """To give, find, stop and retry jobs, in the name of this instance."""
    events: EventBus
    hints: Listener
    worker: JobWorker
    scheduler: Scheduler
    components: tuple[Component, ...]
    """In the order in which they start."""
    database_url: str = field(repr=False)

    def start(self) -> None:
        """Start all, once the database has answered.

        Raises `DatabaseUnavailable`, or `DatabaseUnusable` for one that nobody has migrated.
        """
        require_database(self.database_url, "packhorse-jobs")
        for component in self.components:
            component.start()

    def stop(self, timeout: float) -> None:
        """Let consumers end, give back the jobs that do not, and stop the rest."""
        stop_all(reversed(self.components), timeout)

    def failure(self) -> BaseException | None:
        """Return what ended one of them, which neither jobs nor the database do."""
        watched = (one for one in self.components if isinstance(one, Watched))
        return next((death for one in watched if (death := one.failure())), None)


def open_jobs(
    database_url: str,
    cluster: OwnCluster | None,
    *,
    consumers: Consumers,
    declared: Declared = _NOTHING,
    settings: WorkerSettings = DEFAULTS,
    pool: SharedPool | None = None,
) -> JobsHost:
    """Put a program's part together; nothing connects before its start.

    Add all consumers before: they are announced now. Queues and schedules are declared at the
    start; no job is begun before. Without a cluster the instance has an id of this run alone,
    nobody leads, and all topics count as consumed. `pool` is the program's own on this database,
    which it starts before the host and stops after it; None: the host has its own. Raises
    `InvalidSchedule`, and `BadDatabaseUrl`.
    """
    check_database_url(database_url)
    shared = SharedPool(database_url, "packhorse-jobs") if pool is None else pool
    resources = _Resources.of(shared, settings, database_url, cluster, consumers)
    declarations = Declarations(resources.own.connection, declared)
    own_pool = (shared,) if pool is None else ()
    return _host(resources, declarations, _worker(resources, settings, declarations), own_pool)


@dataclass(frozen=True, slots=True)
class _Resources:
    """What all parts of one program share."""

    url: str
    instance: str
    pool: Share
    """For consumers, and what they and the program give."""
    own: Share
    events: Share
    """For what senders wait for, who may hold one of the consumers' meanwhile."""
    cluster: OwnCluster | None
    consumers: Consumers

    @classmethod
    def of(
        cls,
        pool: SharedPool,
        settings: WorkerSettings,
        url: str,
        cluster: OwnCluster | None,
        consumers: Consumers,
    ) -> Self:
        """Take a share of the pool for consumers, and some for what must not wait for them."""
        instance = uuid4().hex if cluster is None else cluster.discovery.instance_id
        own, events = pool.share(_OWN_CONNECTIONS), pool.share(1)
        given = pool.share(settings.connections)
        return cls(url, instance, given, own, events, cluster, consumers)


def _host(
    resources: _Resources,
    declarations: Declarations,
    worker: JobWorker,
    own_pool: Sequence[Component],
) -> JobsHost:
    hints, scheduler = Listener(resources.url), _scheduler(resources)
    events = EventBus(partial(store_event, resources.events, resources.instance))
    reads = partial(connect, resources.url, "packhorse-events-in", autocommit=True)
    receiver = Receiver(reads, resources.instance, events)
    hints.on(channels.EVENTS, lambda _: receiver.wake())
    _connect(resources, hints, worker, scheduler)
    return JobsHost(
        jobs=Jobs(resources.pool.connection, resources.instance),
        events=events,
        hints=hints,
        worker=worker,
        scheduler=scheduler,
        components=(
            *own_pool,
            hints,
            events,
            receiver,
            declarations,
            scheduler,
            worker,
        ),
        database_url=resources.url,
    )


def _worker(
    resources: _Resources, settings: WorkerSettings, declarations: Declarations
) -> JobWorker:
    cluster_view: KnownInstances = Alone()
    if resources.cluster is not None:
        cluster_view = InCluster(resources.cluster.discovery, resources.consumers)
    worker = JobWorker(
        WorkerConnections(
            resources.pool.connection,
            resources.own.connection,
            partial(resources.own.connection, _CLAIMS_S),
        ),
        WorkerRun.begin(resources.instance),
        resources.consumers,
        cluster_view,
        settings,
        may_claim=declarations.done.is_set,
    )
    if resources.cluster is not None:  # alone there is no view that says who has left
        discovery = resources.cluster.discovery
        worker.heartbeat.drop_departed = Departures(
            resources.own.connection, discovery.current_view
        ).drop
    return worker


def _scheduler(resources: _Resources) -> Scheduler:
    cluster, connect = resources.cluster, resources.own.connection
    if cluster is None:
        return Scheduler(connect, resources.instance)
    return Scheduler(
        connect,
        resources.instance,
        leader=cluster.leader_task(LEADER_TASK, connect),
        members=lambda: live_handled_topics(cluster.discovery),
    )


def _connect(
    resources: _Resources, hints: Listener, worker: JobWorker, scheduler: Scheduler
) -> None:
    """Let them hear of what happens elsewhere, and others of the consumers here."""
    hints.on(channels.JOBS, worker.hint)
    hints.on(channels.SCHEDULES, lambda _: scheduler.kick())
    if resources.cluster is not None:
        _announce(resources.cluster, resources.consumers)
        resources.cluster.on_change(worker.look_around)
        resources.cluster.on_change(scheduler.kick)


def _announce(cluster: OwnCluster, consumers: Consumers) -> None:
    """Let the topology know the topics that are done here."""
    if reported := consumers.handled_topics().announcement():
        cluster.discovery.set_property(properties.CONSUMERS, reported)
