"""`Jobs`: all that can be done with jobs and queues, beside doing the jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from psycopg import Connection

from packhorse.db.transactions import Connect, reading, within, writing
from packhorse.jobs.filters import EVERYTHING, JobFilter
from packhorse.jobs.job import Job
from packhorse.jobs.ledger import changing, figures, finding, waiting
from packhorse.jobs.ledger.changing import BulkResult, JobChange, change_bulk
from packhorse.jobs.ledger.figures import Statistics
from packhorse.jobs.ledger.pages import JobPage
from packhorse.jobs.ledger.waiting import LiveConsumers, Unconsumed
from packhorse.jobs.queue import JobQueue, QueueConfiguration
from packhorse.jobs.store import adding, queues
from packhorse.jobs.store.adding import AddedJob
from packhorse.jobs.store.given import NewJob
from packhorse.runtime import tracing


class JobOptions(TypedDict, total=False):
    """What `NewJob` has beside topic, properties and id."""

    priority: int
    ready_at: datetime | None
    delay: timedelta | None
    only_on: str | None
    max_retries: int | None


class Jobs:
    """The jobs of a cluster, which is the processes that share a database; safe for threads.

    `application` is who gives jobs: an instance id, or what a client calls itself. Every method
    raises `psycopg.Error` when the database is away.
    """

    def __init__(self, connect: Connect, application: str) -> None:
        self._connect, self._application = connect, application

    def add_job(
        self,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002  # the seed's word
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> AddedJob:
        """Give a job; a topic and an id are one job, however often and where it is given.

        With a connection it is a part of the caller's transaction, and there when that commits;
        the caller's role stays. That one is READ COMMITTED: another has an older snapshot, which
        may not show that a topic is forgotten by now. The job carries the present trace.
        Raises `InvalidName`, `InvalidProperties`, `InvalidJob`, `TooManyTopics`.
        """
        job = NewJob(
            topic=topic,
            properties=properties or {},
            id=id,
            traceparent=tracing.traceparent() or None,
            **options,
        )
        return self.add_jobs([job], connection=connection)[0]

    def add_jobs(
        self, jobs: Sequence[NewJob], *, connection: Connection | None = None
    ) -> list[AddedJob]:
        """Give several jobs at once, all or none; see `add_job`."""
        with writing(self._connect) if connection is None else within(connection) as session:
            if connection is not None:
                adding.require_read_committed(session)
            return adding.add_jobs(session, self._application, jobs)

    def get(self, number: int) -> Job:
        """Return a job. Raises `UnknownJob`."""
        with reading(self._connect) as connection:
            return finding.get(connection, number)

    def get_by_id(self, topic: str, id_: str) -> Job:
        """Return the job that a topic and a caller's id name. Raises `UnknownJob`."""
        with reading(self._connect) as connection:
            return finding.get_by_id(connection, topic, id_)

    def find(
        self, wanted: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> JobPage:
        """Return a page of the jobs that a filter means; `after` is the last page's.

        Unfinished ones come first, the oldest of them first, then history, newest first. A job
        whose state changes between two pages may be in both or in none. Raises `InvalidPage`,
        `FilterTooWide`.
        """
        with reading(self._connect) as connection:
            return finding.find(connection, wanted, after=after, limit=limit)

    def count(
        self, wanted: JobFilter = EVERYTHING, what: JobChange | None = None, *, most: int = 10_000
    ) -> int:
        """Return how many jobs a filter means; with `what`: those that it can be done to.

        Where there are more, `most` is returned.
        """
        with reading(self._connect) as connection:
            return finding.count(connection, wanted, changing.allowed_states(what), most)

    def stop(self, number: int) -> Job:
        """Stop a job wherever it is: end it at once when QUEUED, ask its consumer when ACTIVE.

        Returns it as it is then: STOPPED, or ACTIVE with `stop_requested`. Raises `UnknownJob`,
        `WrongState`.
        """
        return self._change(JobChange.STOP, number)

    def retry(self, number: int) -> Job:
        """Make a job of history QUEUED again, under its number, with all its attempts before it.

        Raises `UnknownJob`, `WrongState`.
        """
        return self._change(JobChange.RETRY, number)

    def remove(self, number: int, *, even_active: bool = False) -> Job:
        """Remove a job: end it as DROPPED when it waits, forget it when it is history.

        One that is ACTIVE has to be stopped first; `even_active` takes it from a consumer that
        does not stop, whose later writes are refused. Returns the job as it is then, or was.
        Raises `UnknownJob`, `WrongState`.
        """
        return self._change(JobChange.ABANDON if even_active else JobChange.REMOVE, number)

    def bulk(
        self, what: JobChange, wanted: JobFilter, *, limit: int = 10_000, after: str | None = None
    ) -> BulkResult:
        """Change the jobs that a filter means and whose state allows it, in batches."""
        return change_bulk(self._connect, what, wanted, limit=limit, after=after)

    def statistics(self) -> Statistics:
        """Return what was done and what waits, of each queue, of each topic, and of all."""
        with reading(self._connect) as connection:
            return figures.read_statistics(connection)

    def unconsumed(self, live: LiveConsumers) -> tuple[Unconsumed, ...]:
        """Return the topics whose jobs wait because nobody who may do them does, by topic.

        `live` is what the live instances announce (`consumers.live_handled_topics`).
        """
        with reading(self._connect) as connection:
            return waiting.unconsumed(connection, live)

    def queues(self) -> list[JobQueue]:
        """Return all queues, by name."""
        with reading(self._connect) as connection:
            return queues.read_queues(connection)

    def queue(self, name: str) -> JobQueue:
        """Return a queue. Raises `UnknownQueue`."""
        with reading(self._connect) as connection:
            return queues.get_queue(connection, name)

    def put_queue(self, configuration: QueueConfiguration, version: int | None = None) -> JobQueue:
        """Make or change a queue, of a version when one is given (0: there must be none yet).

        Raises `QueueChanged`, `InvalidQueue`, `QueuesBusy`.
        """
        with writing(self._connect) as connection:
            return queues.put_queue(connection, configuration, version)

    def remove_queue(self, name: str, version: int | None = None) -> None:
        """Remove a queue; its jobs go to the queues that take their topics then.

        Raises `UnknownQueue`, `QueueChanged`, `QueuesBusy`, `InvalidQueue` for `main`.
        """
        with writing(self._connect) as connection:
            queues.remove_queue(connection, name, version)

    def suspend_queue(self, name: str, version: int | None = None) -> JobQueue:
        """Let no job of a queue begin, on any instance, until it is resumed.

        Raises `UnknownQueue`, `QueueChanged`, `QueuesBusy`.
        """
        with writing(self._connect) as connection:
            return queues.suspend_queue(connection, name, suspended=True, version=version)

    def resume_queue(self, name: str, version: int | None = None) -> JobQueue:
        """Let the jobs of a queue begin again. Raises as `suspend_queue`."""
        with writing(self._connect) as connection:
            return queues.suspend_queue(connection, name, suspended=False, version=version)

    def _change(self, what: JobChange, number: int) -> Job:
        with writing(self._connect) as connection:
            return changing.change(connection, what, number)
