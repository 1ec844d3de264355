"""Runs as jobs, for the schedule and for who asks for one, with their queue; and runs by hand."""

from datetime import timedelta

import psycopg
from psycopg import Connection

from packhorse.errors import PackhorseError
from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.job import Job
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.timing import When
from packhorse.jobs.store.adding import add_job
from packhorse.jobs.store.given import NewJob
from packhorse_services.cleanup import ledger
from packhorse_services.cleanup.cleanup_lock import CleanupBusy, CleanupLock, acquire_lock
from packhorse_services.cleanup.report import CleanupRun
from packhorse_services.cleanup.sweep import Sweep

RUN = "packhorse/cleanup/run"
"""Topic of the jobs that are runs; the property `run` names one that was asked for."""

QUEUE = QueueConfiguration(
    name="cleanup",
    patterns=(RUN,),
    type=QueueType.UNORDERED,
    max_parallel=1,
    max_retries=-1,
    retry_delay_s=5,
    max_retry_delay_s=900,
)
"""A run that fails comes again until it succeeds, as a package does: what ended it may be over.

Runs that meet wait for each other's turn.
"""

_BUSY_S = 5.0
_BY_HAND = "hand"
_BY_SCHEDULE = "schedule"


def schedule_of(when: When) -> ScheduleDefinition:
    """Return the schedule that the service declares."""
    return ScheduleDefinition(
        name="packhorse.cleanup",
        when=when,
        action=JobAction(RUN),
        description="Removes packages from the blob store that the journal has forgotten",
        concurrent=False,
    )


def request_run(connection: Connection, application: str, origin: str, *, dry_run: bool) -> int:
    """Ask for a run and return its id; it begins within seconds. Raises `RunWaits`."""
    run = ledger.request(connection, origin, dry_run=dry_run)
    add_job(connection, application, NewJob(RUN, {"run": run}))
    return run


class Runner:
    """The consumer of the jobs that are runs."""

    def __init__(self, database_url: str, sweep: Sweep) -> None:
        self._database_url, self._sweep = database_url, sweep

    def __call__(self, job: Job, context: JobContext) -> Result:
        """Do the run that waits, then the job's own, each with as many more as are needed."""
        while not context.stop_requested:
            try:
                with acquire_lock(self._database_url, context) as lock:
                    self._perform(lock, job, context)
                return Result(Outcome.OK)
            except CleanupBusy:
                context.wait(_BUSY_S)
            except (PackhorseError, psycopg.Error) as error:
                return Result(Outcome.FAILED, str(error))
        return Result(Outcome.FAILED, "it was asked to stop", retry_delay=timedelta(0))

    def _perform(self, lock: CleanupLock, job: Job, context: JobContext) -> None:
        with lock.transaction() as connection:
            waiting = ledger.begin_waiting(connection, lock.epoch)
        if waiting is not None:
            self._sweep_all(lock, waiting, context)
        with lock.transaction() as connection:
            own = _begin_own(connection, lock.epoch, job)
        if own is not None:
            self._sweep_all(lock, own, context)

    def _sweep_all(self, lock: CleanupLock, run: CleanupRun, context: JobContext) -> None:
        context.log(f"run {run.id}")
        while not self._sweep.perform(lock, run) and not context.stop_requested:
            with lock.transaction() as connection:
                run = ledger.begin(connection, lock.epoch, run.origin, dry_run=False)
            context.log(f"run {run.id}, for what was too much for one")


def run_by_hand(database_url: str, sweep: Sweep, *, dry_run: bool) -> CleanupRun:
    """Do a run now and return it; what is too much for one is left to the service.

    Raises `CleanupBusy`, and what `Sweep.perform` raises.
    """
    with acquire_lock(database_url) as lock:
        with lock.transaction() as connection:
            run = ledger.begin(connection, lock.epoch, _BY_HAND, dry_run=dry_run)
        complete = sweep.perform(lock, run)
        with lock.transaction() as connection:
            if not complete:
                add_job(connection, _BY_HAND, NewJob(RUN))
            return ledger.find(connection, run.id) or run


def _begin_own(connection: Connection, epoch: int, job: Job) -> CleanupRun | None:
    requested = job.properties.get("run")
    if isinstance(requested, int):
        return ledger.begin_again(connection, epoch, requested)
    return ledger.begin(connection, epoch, _BY_SCHEDULE, dry_run=False)
