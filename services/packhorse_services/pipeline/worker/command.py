"""`packhorse-pipeline worker`."""

from collections.abc import Sequence

from packhorse.db.pool import SharedPool, ask
from packhorse.db.prepare import prepare_database
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import LEADER_TASKS, JobsHost, open_jobs
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.http import ServiceDescription, create_app
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.serve import run_service
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse_services.pipeline.settings import PipelineWorkerSettings
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.worker.running import RunTask
from packhorse_services.pipeline.worker.tasks import QUEUE, TASKS, Task

_SERVICE = ServiceDescription("packhorse pipeline worker", "Runs tasks of the pipeline as jobs.")


def worker() -> None:
    """Run tasks as jobs, at the times of their schedules, until SIGTERM or SIGINT.

    The schedules are suspended until somebody resumes them. Over HTTP it shows how it is.
    """
    settings = loaded(PipelineWorkerSettings)
    logs.configure(settings.log_format, settings.log_level)
    Location.parse(settings.tables_url)
    authenticator = authenticator_for(settings)
    url = settings.database_url.get_secret_value()
    prepare_database(url, "packhorse-pipeline")
    announced = InstanceProperties(
        "pipeline", endpoint=settings.endpoint, leader_tasks=LEADER_TASKS
    )
    cluster = join(url, settings.topology, announced)
    pool = SharedPool(url, "packhorse-pipeline")
    share = pool.share(1)
    app = create_app(
        _SERVICE, authenticator, Readiness({"database": lambda: ask(share)}), docs=settings.docs
    )
    components = (pool, cluster, host_of(url, cluster, pool=pool))
    run_service(app, settings, components)


def host_of(
    database_url: str,
    cluster: OwnCluster | None,
    tasks: Sequence[Task] = TASKS,
    pool: SharedPool | None = None,
) -> JobsHost:
    """Return the component that runs tasks; nothing connects before its start."""
    consumers = Consumers()
    for task in tasks:
        consumers.add(task.topic, RunTask(task.command))
    schedules = [task.schedule for task in tasks]
    return open_jobs(
        database_url, cluster, consumers=consumers, declared=Declared([QUEUE], schedules), pool=pool
    )
