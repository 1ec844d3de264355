"""`packhorse-pipeline worker`."""

import signal
import threading
from collections.abc import Sequence

from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.host import DUTIES, JobsHost, open_jobs
from packhorse.runtime import logs
from packhorse.runtime.configuration import loaded
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.topology.own_cluster import Announced, OwnCluster, join
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.settings import WorkerSettings
from packhorse_services.pipeline.worker.running import RunTask
from packhorse_services.pipeline.worker.tasks import QUEUE, TASKS, Task

_LOOK_S = 1.0


def worker() -> None:
    """Run tasks as jobs, at the times of their schedules, until SIGTERM or SIGINT.

    The schedules are suspended until somebody resumes them.
    """
    settings = loaded(WorkerSettings)
    logs.configure(settings.log_format, settings.log_level)
    Location.parse(settings.tables_url)
    url = settings.database_url.get_secret_value()
    engine = open_engine(url, "packhorse-pipeline")
    upgrade(engine)
    engine.dispose()
    announced = Announced("pipeline", endpoint=settings.endpoint, duties=DUTIES)
    cluster = join(url, settings.topology, announced)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with Lifecycle([cluster, host_of(url, cluster)]) as lifecycle:
        while not stopping.wait(_LOOK_S):
            lifecycle.check()


def host_of(
    database_url: str, cluster: OwnCluster | None, tasks: Sequence[Task] = TASKS
) -> JobsHost:
    """Return the component that runs tasks; nothing connects before its start."""
    consumers = Consumers()
    for task in tasks:
        consumers.add(task.topic, RunTask(task.command))
    schedules = [task.schedule for task in tasks]
    return open_jobs(
        database_url, cluster, consumers=consumers, queues=[QUEUE], schedules=schedules
    )
