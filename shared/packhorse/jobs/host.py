"""Events, jobs and schedules in one program: everything that it needs for its part in them.

    consumers = Consumers()
    consumers.add("images/thumbnail", make_thumbnail)
    host = open_jobs(url, cluster, consumers=consumers, queues=[...], schedules=[...])

Start the cluster before it. A database that is away ends nothing: all of it is tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.clock import SystemClock
from packhorse.db.connect import open_pool
from packhorse.jobs import hints as channels
from packhorse.jobs.consumers import Consumers, live_reaches
from packhorse.jobs.declaring import Declarations
from packhorse.jobs.events.bus import EventBus
from packhorse.jobs.events.distribution import EventDistribution
from packhorse.jobs.hints import Hints
from packhorse.jobs.jobs import Jobs
from packhorse.jobs.ledger.departures import Departures
from packhorse.jobs.scheduling.definition import ScheduleDefinition
from packhorse.jobs.scheduling.scheduler import DUTY, Scheduler
from packhorse.jobs.store.leases import Run
from packhorse.jobs.store.queues import QueueConfiguration
from packhorse.jobs.work.surroundings import Alone, InCluster, Surroundings
from packhorse.jobs.work.worker import JobWorker
from packhorse.jobs.work.worker_settings import DEFAULTS, WorkerSettings
from packhorse.runtime.lifecycle import Component, Watched
from packhorse.runtime.periodic import Periodic
from packhorse.topology import properties
from packhorse.topology.own_cluster import OwnCluster

DUTIES = (DUTY,)
"""Add these to the `Announced.duties` of a program with a cluster: who has them leads."""

_OWN_CONNECTIONS = 6
"""For lease, scheduler and declarations: never lent to consumers, who may take all of theirs."""
_DEPARTURES_S = 60.0
Pool = ConnectionPool[Connection]


@dataclass(frozen=True, slots=True)
class JobsHost:
    """A component of components; what a program does with jobs beside consuming them."""

    jobs: Jobs
    """To give, find, stop and retry jobs, in the name of this instance."""
    events: EventBus
    hints: Hints
    worker: JobWorker
    scheduler: Scheduler
    consumers: Consumers
    """May change at any time."""
    components: tuple[Component, ...]
    """In the order in which they start."""
    pools: tuple[Pool, ...]

    def start(self) -> None:
        """Start all; returns at once, whether the database answers or not."""
        for component in self.components:
            component.start()

    def stop(self, timeout: float) -> None:
        """Let consumers end, give back the jobs that do not, and stop the rest."""
        clock = SystemClock()
        until = clock.monotonic() + timeout
        for component in reversed(self.components):
            component.stop(max(0.5, until - clock.monotonic()))
        for pool in self.pools:
            pool.close(max(0.5, until - clock.monotonic()))

    def failure(self) -> BaseException | None:
        """Return what ended one of them, which neither jobs nor the database do."""
        watched = (one for one in self.components if isinstance(one, Watched))
        return next((death for one in watched if (death := one.failure())), None)


def open_jobs(
    database_url: str,
    cluster: OwnCluster | None,
    *,
    consumers: Consumers,
    queues: Sequence[QueueConfiguration] = (),
    schedules: Sequence[ScheduleDefinition] = (),
    settings: WorkerSettings = DEFAULTS,
) -> JobsHost:
    """Put a program's part together; nothing connects before its start.

    Queues and schedules are declared at the start: what is there already, and changed by an
    operator, stays; no job is begun before. Without a cluster the instance has an id of this run
    alone, nobody leads, and all topics count as consumed. Raises `InvalidSchedule`.
    """
    ground = _Ground(
        database_url,
        uuid4().hex if cluster is None else cluster.discovery.instance_id,
        open_pool(database_url, "packhorse-jobs-consumers", size=settings.connections),
        open_pool(database_url, "packhorse-jobs-own", size=_OWN_CONNECTIONS),
        cluster,
        consumers,
    )
    hints, events = Hints(database_url), EventBus()
    declarations = Declarations(ground.own.connection, queues, schedules)
    worker, scheduler = _worker(ground, settings, declarations), _scheduler(ground)
    _connect(ground, hints, worker, scheduler)
    distribution = EventDistribution(database_url, ground.instance, events, hints)
    others = _departures(ground)
    return JobsHost(
        jobs=Jobs(ground.pool.connection, ground.instance),
        events=events,
        hints=hints,
        worker=worker,
        scheduler=scheduler,
        consumers=consumers,
        components=(hints, events, distribution, declarations, *others, scheduler, worker),
        pools=(ground.pool, ground.own),
    )


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all parts of one program stand on."""

    url: str
    instance: str
    pool: Pool
    """For consumers, and what they and the program give."""
    own: Pool
    cluster: OwnCluster | None
    consumers: Consumers


def _worker(ground: _Ground, settings: WorkerSettings, declarations: Declarations) -> JobWorker:
    surroundings: Surroundings = Alone()
    if ground.cluster is not None:
        surroundings = InCluster(ground.cluster, ground.consumers, DUTY)
    return JobWorker(
        ground.url,
        Run.begin(ground.instance),
        lend=ground.pool.connection,
        lend_for_lease=ground.own.connection,
        consumers=ground.consumers,
        surroundings=surroundings,
        settings=settings,
        may_claim=declarations.done.is_set,
    )


def _scheduler(ground: _Ground) -> Scheduler:
    cluster, connect = ground.cluster, ground.own.connection
    if cluster is None:
        return Scheduler(connect, ground.instance)
    return Scheduler(
        connect,
        ground.instance,
        leader=cluster.duty(DUTY, connect),
        members=lambda: live_reaches(cluster.discovery),
    )


def _departures(ground: _Ground) -> tuple[Component, ...]:
    """Return what drops jobs of instances that left; alone there is no view that says who did."""
    if ground.cluster is None:
        return ()
    departures = Departures(ground.own.connection, ground.cluster.discovery.current_view)
    return (Periodic("jobs-departures", _DEPARTURES_S, departures.drop),)


def _connect(ground: _Ground, hints: Hints, worker: JobWorker, scheduler: Scheduler) -> None:
    """Let them hear of what happens elsewhere, and others of the consumers here."""
    hints.on(channels.JOBS, worker.hint)
    hints.on(channels.SCHEDULES, lambda _: scheduler.kick())
    if ground.cluster is not None:
        _announce(ground.cluster, ground.consumers)
        ground.cluster.on_change(worker.look_around)
        ground.cluster.on_change(scheduler.kick)


def _announce(cluster: OwnCluster, consumers: Consumers) -> None:
    """Let the topology know the topics that are done here, now and after each change."""

    def announce() -> None:
        told = consumers.reach().announcement()
        if told:
            cluster.discovery.set_property(properties.CONSUMERS, told)
        else:
            cluster.discovery.remove_property(properties.CONSUMERS)

    announce()
    consumers.on_change(announce)
