"""What an app has registered, and what is made of it when it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from packhorse.app.configuration import AppConfiguration
from packhorse.app.topology import Topology
from packhorse.app.watching import ContentWatches
from packhorse.jobs.consumer import Consumer
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.content_changes.watches import ContentWatch
from packhorse.jobs.declaring import Declared
from packhorse.jobs.events.delivery import Handler
from packhorse.jobs.filters import Template
from packhorse.jobs.host import LEADER_TASKS, JobsHost, open_jobs
from packhorse.jobs.queue import QueueConfiguration
from packhorse.jobs.scheduling.definition import ScheduleDefinition
from packhorse.runtime.lifecycle import Component
from packhorse.topology.listeners import Listener
from packhorse.topology.properties import PropertyProvider


@dataclass(frozen=True, slots=True)
class RegisteredHandler:
    """What hears events, and which; see `EventBus.subscribe`."""

    patterns: Sequence[str]
    handler: Handler
    where: Sequence[Template] = ()
    gaps: bool = False


@dataclass(slots=True)
class Registered:
    """What the program does, as far as it has said."""

    name: str
    consumers: list[tuple[str, Consumer]] = field(default_factory=list)
    schedules: list[ScheduleDefinition] = field(default_factory=list)
    queues: list[QueueConfiguration] = field(default_factory=list)
    handlers: list[RegisteredHandler] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    leader_tasks: list[str] = field(default_factory=list)
    providers: Sequence[PropertyProvider] = ()
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
    topology: Topology
    host: JobsHost


def running_app(configuration: AppConfiguration, registered: Registered) -> RunningApp:
    """Put everything together; nothing starts yet. Raises as `Topology.of` does."""
    topology = Topology.of(
        configuration,
        registered.name,
        registered.providers,
        (*LEADER_TASKS, *registered.leader_tasks),
    )
    host = open_jobs(
        configuration.database_url,
        topology.cluster,
        consumers=registered.all_consumers(),
        declared=Declared(registered.queues, registered.schedules),
        pool=topology.pool,
    )
    for one in registered.handlers:
        host.events.subscribe(one.patterns, one.handler, where=one.where, gaps=one.gaps)
    for listener in registered.listeners:
        topology.on_change(listener)
    watches = ContentWatches(topology.connection, registered.watches)
    return RunningApp((topology, watches, host), topology, host)
