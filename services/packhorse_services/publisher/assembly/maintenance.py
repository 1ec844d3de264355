"""Work of a publisher that is done once a cluster, as jobs: periodic tasks, and releases.

An operator sees the schedules, and may change or suspend them. What each replica does for itself,
as trimming its caches, is no such work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from packhorse.db.pool import SharedPool
from packhorse.jobs.consumer import Consumer, JobContext, Outcome
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import JobsHost, open_jobs
from packhorse.jobs.job import Job
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.timing import Every
from packhorse.jobs.work.heartbeat import WorkerSettings
from packhorse.topology.own_cluster import OwnCluster
from packhorse_services.publisher.releases.sending import QUEUE as RELEASES

_TOPICS = "packhorse/publisher"

QUEUE = QueueConfiguration(
    name="publisher-chores",
    patterns=(f"{_TOPICS}/**",),
    type=QueueType.UNORDERED,
    max_parallel=1,
    max_retries=3,
    keep_history=False,
)
"""A task that failed runs again at its next fire time, if not before."""

_WORK = WorkerSettings(places=8, connections=2)
"""Maintenance tasks are few, and run one at a time; four releases are sent at a time."""


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """Something to be done every so often by one replica of an agent."""

    name: str
    every: timedelta
    description: str
    act: Callable[[], object]
    """An exception is a failed attempt."""
    agent: str

    @property
    def topic(self) -> str:
        """The topic of its jobs, which only those who can do it consume."""
        return f"{_TOPICS}/{self.agent}/{self.name}"

    @property
    def schedule(self) -> ScheduleDefinition:
        """Its schedule, as publishers declare it."""
        return ScheduleDefinition(
            name=f"packhorse.publisher.{self.agent}.{self.name}",
            when=Every(self.every),
            action=JobAction(self.topic),
            description=self.description,
            concurrent=False,
        )


def host_of(
    database_url: str,
    cluster: OwnCluster,
    maintenance_tasks: Sequence[MaintenanceTask],
    sending: Mapping[str, Consumer],
    pool: SharedPool | None = None,
) -> JobsHost:
    """Return the component that does the tasks and sends releases; nothing connects before start.

    `sending` holds by the topic of their jobs what sends releases. `pool` is the program's, as for
    `open_jobs`.
    """
    consumers = Consumers()
    for task in maintenance_tasks:
        consumers.add(task.topic, partial(_do, task))
    for topic, send in sending.items():
        consumers.add(topic, send)
    schedules = [task.schedule for task in maintenance_tasks]
    return open_jobs(
        database_url,
        cluster,
        consumers=consumers,
        declared=Declared([QUEUE, RELEASES], schedules),
        settings=_WORK,
        pool=pool,
    )


def _do(task: MaintenanceTask, _job: Job, _context: JobContext) -> Outcome:
    task.act()
    return Outcome.OK
