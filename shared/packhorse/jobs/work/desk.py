"""Where attempts of one process hand in what has become of them, and how they write themselves."""

import threading
from collections import deque
from contextlib import AbstractContextManager

from psycopg import Connection

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobLost
from packhorse.jobs.sessions import Connect, within
from packhorse.jobs.store import claims, finishing
from packhorse.jobs.store.finishing import Ended
from packhorse.jobs.store.notes import stored_text
from packhorse.jobs.work.roster import End, Reply, Roster
from packhorse.jobs.work.running import Running
from packhorse.runtime.metrics import JOBS_ENDED


class Desk:
    """The store as attempts see it; their threads hand in, the worker's thread takes."""

    def __init__(self, connect: Connect, bell: threading.Event) -> None:
        self._connect, self._bell = connect, bell
        self._lock = threading.Lock()
        self._returned: deque[tuple[Running, Result]] = deque()
        self._handed_in: deque[End] = deque()
        self._open = True

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection."""
        return self._connect()

    def hold(self, connection: Connection, running: Running) -> None:
        """Keep the attempt until the transaction ends. Raises `JobLost`."""
        with within(connection) as session:
            claims.check(session, running.claim)

    def succeed(self, connection: Connection, running: Running) -> None:
        """Finish the job in a transaction of the bookkeeper. Raises `JobLost`."""
        notes = running.take_notes()
        [ending] = finishing.finish(connection, [Ended(running.claim, Result(Outcome.OK), notes)])
        if ending.state is None:
            raise JobLost(f"attempt {running.job.attempts} of job {running.job.number} is over")
        JOBS_ENDED.labels(running.job.queue, ending.state.value).inc()

    def report(self, running: Running, result: Result) -> None:
        """Note what an attempt's thread has returned."""
        self._returned.append((running, result))
        self._bell.set()

    def hand_in(self, running: Running, result: Result) -> None:
        """End an attempt, and return once that is stored. Raises `JobLost`."""
        reply = Reply()
        with self._lock:
            if not self._open or not running.close():
                raise JobLost(f"attempt {running.job.attempts} of job {running.job.number} is over")
            told = Result(result.outcome, stored_text(result.message), result.retry_delay)
            self._handed_in.append(End(running, told, reply=reply))
        self._bell.set()
        if not reply.wait():
            raise JobLost(f"the end of job {running.job.number} was not stored in time")

    def take_into(self, roster: Roster) -> None:
        """Give the roster all that was handed in."""
        while self._handed_in:
            roster.handed_in(self._handed_in.popleft())
        while self._returned:
            roster.returned(*self._returned.popleft())

    def close(self) -> None:
        """Take nothing more; who waits for a reply gets none."""
        with self._lock:
            self._open = False
            for end in self._handed_in:
                if end.reply is not None:
                    end.reply.give(stored=False)
