"""`packhorse-pipeline worker`: tasks as jobs, at times that an operator sees and may change."""

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from packhorse.db.pool import SharedPool, ask
from packhorse.db.prepare import prepare_database
from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import LEADER_TASKS, JobsHost, open_jobs
from packhorse.jobs.job import Job
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.timing import Cron
from packhorse.runtime import leash
from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.http import ServiceDescription, create_app
from packhorse.runtime.readiness import Readiness
from packhorse.runtime.serve import configured, run_service
from packhorse.runtime.startup import WRONG_CONFIGURATION
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse_services.pipeline.settings import PipelineWorkerSettings
from packhorse_services.pipeline.storage.location import Location

_TOPICS = "packhorse/pipeline"

QUEUE = QueueConfiguration(
    name="pipeline",
    patterns=(f"{_TOPICS}/**",),
    type=QueueType.UNORDERED,
    max_parallel=1,
    max_retries=2,
    retry_delay_s=60.0,
)
"""A worker runs one task at a time: each takes the memory that Spark was given."""


# Whoever wants them resumes them. A task that an operator runs from a scheduler of their own, as
# cron, would be done twice otherwise.
@dataclass(frozen=True, slots=True)
class Task:
    """A command of the pipeline without options, and when it is worth running."""

    name: str
    cron: str
    description: str

    @property
    def topic(self) -> str:
        """The topic of its jobs."""
        return f"{_TOPICS}/{self.name}"

    @property
    def command(self) -> Sequence[str]:
        """What is run; nothing of a job comes into it."""
        # Unbuffered: a line is in the job's log when it is said, in the order of both streams.
        return (sys.executable, "-u", "-m", "packhorse_services.pipeline", self.name)

    @property
    def schedule(self) -> ScheduleDefinition:
        """Its schedule, as a worker declares it."""
        return ScheduleDefinition(
            name=f"packhorse.pipeline.{self.name}",
            when=Cron(self.cron),
            action=JobAction(self.topic),
            description=self.description,
            concurrent=False,
            suspended=True,
        )


TASKS = (
    Task("archive", "*/15 * * * *", "Archives what is in the journal"),
    Task("measures", "20 * * * *", "Measures how fast packages were delivered"),
    Task("upkeep", "40 3 * * *", "Compacts the tables and deletes days that have expired"),
)


_LOOK_S = 0.5
_GRACE_S = 60.0
"""How long a task may take to end, which ends a batch of Spark in order."""
_LONGEST_LINE = 2_000
_REPORTED_LINES, _REPORTED_CHARACTERS = 5, 300
_SERVICE = ServiceDescription("packhorse pipeline worker", "Runs tasks of the pipeline as jobs.")


def worker() -> None:
    """Run tasks as jobs, at the times of their schedules, until SIGTERM or SIGINT.

    The schedules are suspended until somebody resumes them. Over HTTP it shows how it is.
    """
    settings = configured(PipelineWorkerSettings)
    Location.parse(settings.tables_url)
    authenticator = authenticator_for(settings)
    url = settings.database_url.get_secret_value()
    prepare_database(url, "packhorse-pipeline")
    announced = InstanceProperties(
        "pipeline", endpoint=settings.endpoint, leader_tasks=LEADER_TASKS
    )
    cluster = join(url, settings, announced)
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


@dataclass(frozen=True, slots=True)
class RunTask:
    """The consumer of one task's jobs; a stop request or a lost job ends the process."""

    command: Sequence[str]

    def __call__(self, _job: Job, context: JobContext) -> Result:
        """Run it, with what it says in the job's log; wrong settings are not tried again."""
        said: deque[str] = deque(maxlen=_REPORTED_LINES)
        process = subprocess.Popen(
            [*leash.on_leash(), *self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        hearing = threading.Thread(target=_hear, args=(process.stdout, context, said), daemon=True)
        try:
            hearing.start()
            stopped = self._wait(process, context)
            code = process.wait()
        except BaseException:  # the next attempt would run beside it
            process.kill()
            process.wait()
            raise
        hearing.join(_GRACE_S)  # what the process has started may outlive it, and hold the pipe
        return _result(code, "\n".join(said), stopped=stopped)

    def _wait(self, process: "subprocess.Popen[bytes]", context: JobContext) -> bool:
        """Return whether it was asked to end before it did."""
        while process.poll() is None:
            if context.wait(_LOOK_S) and process.poll() is None:
                process.terminate()
                try:
                    process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                return True
        return False


def _hear(stream: IO[bytes], context: JobContext, said: deque[str]) -> None:
    """Read to the end, whatever is written: a full pipe would hold the task up."""
    with stream:
        while line := stream.readline(_LONGEST_LINE):
            reported = line.decode(errors="replace").rstrip().replace("\0", "")
            if reported:
                said.append(reported[:_REPORTED_CHARACTERS])
                context.log(reported)


def _result(code: int, said: str, *, stopped: bool) -> Result:
    if code == 0:
        return Result(Outcome.OK, said)
    if stopped:
        return Result(Outcome.FAILED, "a stop was requested")
    outcome = Outcome.CANCEL if code == WRONG_CONFIGURATION else Outcome.FAILED
    return Result(outcome, f"exit code {code}: {said}")
