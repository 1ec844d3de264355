"""What a consumer has beside the job: `JobContext` and `JobHandle` for one attempt."""

import operator
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Protocol

from psycopg import Connection
from psycopg.rows import tuple_row

from packhorse.db.run_sessions import tie_session
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobLost, JobProgress, JobState
from packhorse.jobs.store.notes import NOTHING_SAID, Notes
from packhorse.jobs.work.attempt import RunningAttempt
from packhorse.runtime.metrics import JOBS_ENDED

_MOST_STEPS = 2**53


class AttemptStore(Protocol):
    """Where attempts are written; every write is refused once the attempt is another one's."""

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection."""
        ...

    def hold(self, connection: Connection, running: RunningAttempt) -> None:
        """Keep the attempt until the transaction ends, whose role stays. Raises `JobLost`."""
        ...

    def succeed(self, connection: Connection, running: RunningAttempt, notes: Notes) -> JobState:
        """Finish the job; from now on the transaction is the bookkeeper's. Raises `JobLost`.

        Returns its state once that is committed.
        """
        ...

    def submit_result(self, running: RunningAttempt, result: Result) -> None:
        """End the attempt, and return once that is stored. Raises `JobLost`."""
        ...


class AttemptContext:
    """The context of one attempt."""

    def __init__(self, running: RunningAttempt, store: AttemptStore) -> None:
        self._running, self._store = running, store

    @contextmanager
    def completion(self) -> Iterator[Connection]:
        """Open the transaction whose commit finishes the job.

        The job is looked at first and ended last, so that no lock is held for as long as the work
        lasts; the end has the epoch, and what was done under an older one is rolled back. The
        session has the limits of all (`db.engine.Timeouts`): long work belongs before it. What the
        consumer does has the login's rights; only the end is the bookkeeper's.
        """
        self._running.require_open()
        self._running.completing, notes = True, NOTHING_SAID
        try:
            with self._store.connection() as connection, connection.transaction():
                try:
                    yield connection
                finally:
                    connection.row_factory = tuple_row  # the consumer may have wanted other rows
                self._running.require_open()
                notes = self._running.take_notes()
                state = self._store.succeed(connection, self._running, notes)
            self._running.close()
            JOBS_ENDED.labels(self._running.job.queue, state.value).inc()
        except BaseException as error:
            self._running.give_back(notes)
            if isinstance(error, JobLost):
                self._running.close()
            raise
        finally:
            self._running.completing = False

    def check(self, connection: Connection) -> None:
        """Hold the attempt until the connection's transaction ends."""
        self._running.require_open()
        self._store.hold(connection, self._running)

    def tie_to_lease(self, connection: Connection) -> None:
        """Let the session end when this worker's lease is over."""
        self._running.require_open()
        tie_session(connection, self._running.claim.runtime_id)

    @property
    def stop_requested(self) -> bool:
        """Whether to end soon."""
        return self._running.stop_requested

    def wait(self, seconds: float) -> bool:
        """Wait, at most until a stop is requested."""
        return self._running.wait(seconds)

    def init_progress(self, steps: int, eta: timedelta | None = None) -> None:
        """Say how many steps there are. Raises as `progress`."""
        self._running.say_progress(JobProgress(steps=_counted(steps)), eta)

    def progress(self, step: int, message: str = "", eta: timedelta | None = None) -> None:
        """Say how far it is. Raises `TypeError` or `ValueError` for what is no step."""
        self._running.say_progress(JobProgress(step=_counted(step), message=message), eta)

    def log(self, line: str) -> None:
        """Add a line to the job's log."""
        self._running.say_line(line)

    def set_property(self, name: str, value: Any) -> None:
        """Leave something. Raises `InvalidProperties` when all together are too large."""
        self._running.say_property(name, value)

    def handle(self) -> "AttemptHandle":
        """Return what ends the job after `Outcome.ASYNC`."""
        return AttemptHandle(self._running, self._store)


def _counted(steps: int) -> int:
    """Return it as an int that JSON can hold, whatever library of numbers it comes from."""
    number = operator.index(steps)
    if not 0 <= number <= _MOST_STEPS:
        raise ValueError(f"steps are 0 to {_MOST_STEPS}")
    return number


class AttemptHandle:
    """Ends an attempt from any thread of its process."""

    def __init__(self, running: RunningAttempt, store: AttemptStore) -> None:
        self._running, self._store = running, store

    def finish(self, result: Result | Outcome) -> None:
        """End it, and return once that is stored.

        Raises `JobLost`, also the second time, and `ValueError` for ASYNC, which is no end.
        """
        given = result if isinstance(result, Result) else Result(result)
        if given.outcome is Outcome.ASYNC:
            raise ValueError("a handle ends the job: OK, FAILED or CANCEL")
        self._store.submit_result(self._running, given)
