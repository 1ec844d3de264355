"""What an app has registered, and what is made of it when it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from packhorse.app.configuration import AppConfiguration
from packhorse.app.watching import ContentWatches
from packhorse.db.pool import Share, SharedPool
from packhorse.db.prepare import prepare_database
from packhorse.jobs.consumer import Consumer
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.content_changes.watches import ContentWatch
from packhorse.jobs.declaring import Declared
from packhorse.jobs.events.delivery import Handler
from packhorse.jobs.filters import Template
from packhorse.jobs.host import LEADER_TASKS, JobsHost, open_jobs
from packhorse.jobs.queue import QueueConfiguration
from packhorse.jobs.scheduling.definition import ScheduleDefinition
from packhorse.jobs.sessions import Connect
from packhorse.runtime.lifecycle import Component
from packhorse.topology.leader import LeaderOnly
from packhorse.topology.listeners import Listener
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join

_CONNECTIONS = 8
"""For the program's own transactions, and for its leader tasks."""


@dataclass(slots=True)
class Registered:
    """What the program does, as far as it has said."""

    name: str
    consumers: list[tuple[str, Consumer]] = field(default_factory=list)
    schedules: list[ScheduleDefinition] = field(default_factory=list)
    queues: list[QueueConfiguration] = field(default_factory=list)
    handlers: list[tuple[Sequence[str], Handler, Sequence[Template]]] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    leader_tasks: list[str] = field(default_factory=list)
    watches: list[ContentWatch] = field(default_factory=list)

    def all_consumers(self) -> Consumers:
        """Return a registry of the consumers."""
        registry = Consumers()
        for topic, consumer in self.consumers:
            registry.add(topic, consumer)
        return registry


@dataclass(frozen=True, slots=True)
class RunningApp:
    """What an app works with while it runs."""

    components: tuple[Component, ...]
    """In the order in which they start."""
    cluster: OwnCluster
    host: JobsHost
    own: Share

    def leader_task(self, name: str) -> tuple[LeaderOnly, Connect]:
        """Return a leader task, and what lends the connection for its work."""
        return self.cluster.leader_task(name, self.own.connection), self.own.connection


def running_app(configuration: AppConfiguration, registered: Registered) -> RunningApp:
    """Bring the database to the newest schema, and put everything together; nothing starts yet.

    Raises as `prepare_database` and `join` do.
    """
    url, name = configuration.database_url, registered.name
    prepare_database(url, name)
    announced = InstanceProperties(
        name,
        endpoint=configuration.endpoint,
        leader_tasks=(*LEADER_TASKS, *registered.leader_tasks),
    )
    pool = SharedPool(url, name)
    cluster = join(url, configuration.topology, announced)
    host = open_jobs(
        url,
        cluster,
        consumers=registered.all_consumers(),
        declared=Declared(registered.queues, registered.schedules),
        pool=pool,
    )
    for patterns, handler, where in registered.handlers:
        host.events.subscribe(patterns, handler, where=where)
    for listener in registered.listeners:
        cluster.discovery.add_listener(listener)
    own = pool.share(_CONNECTIONS)
    watches = ContentWatches(own, registered.watches)
    return RunningApp((pool, watches, cluster, host), cluster, host, own)
