"""`packhorse-pipeline worker`."""

from collections.abc import Sequence

from packhorse.db.connect import ClosesPool, ask, open_pool
from packhorse.db.engine import open_engine
from packhorse.db.migrate import upgrade
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.host import DUTIES, JobsHost, open_jobs
from packhorse.runtime import logs
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.configuration import loaded
from packhorse.runtime.http import create_app
from packhorse.runtime.serve import run as run_service
from packhorse.topology.own_cluster import Announced, OwnCluster, join
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.settings import WorkerSettings
from packhorse_services.pipeline.worker.running import RunTask
from packhorse_services.pipeline.worker.tasks import QUEUE, TASKS, Task


def worker() -> None:
    """Run tasks as jobs, at the times of their schedules, until SIGTERM or SIGINT.

    The schedules are suspended until somebody resumes them. Over HTTP it shows how it is.
    """
    settings = loaded(WorkerSettings)
    logs.configure(settings.log_format, settings.log_level)
    Location.parse(settings.tables_url)
    authenticator = authenticator_for(settings)
    url = settings.database_url.get_secret_value()
    engine = open_engine(url, "packhorse-pipeline")
    upgrade(engine)
    engine.dispose()
    announced = Announced("pipeline", endpoint=settings.endpoint, duties=DUTIES)
    cluster = join(url, settings.topology, announced)
    pool = open_pool(url, "packhorse-pipeline", size=1)
    app = create_app(
        title="packhorse pipeline worker",
        description="Runs tasks of the pipeline as jobs.",
        authenticator=authenticator,
        readiness={"database": lambda: ask(pool)},
        docs=settings.docs,
    )
    components = (ClosesPool(pool), cluster, host_of(url, cluster))
    run_service(app, host=settings.host, port=settings.port, components=components)


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
