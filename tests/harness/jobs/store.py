"""The store of jobs as a test uses it: each call is a transaction, unless one is held open."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg import Connection

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import Job
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store import claims, finishing, leases, rescue
from packhorse.jobs.store.adding import AddedJob, add_job
from packhorse.jobs.store.claims import Claimed, ClaimRequest
from packhorse.jobs.store.endings import EndDecision
from packhorse.jobs.store.finishing import Ended, Ending
from packhorse.jobs.store.given import NewJob, read_jobs
from packhorse.jobs.store.queues import declare_queue, read_layout
from tests.harness.jobs.stored import bookkeeper


class Store:
    """A database with a queue `free` (UNORDERED) for `free/*`, `line` (ORDERED) for `line/*`,
    and `turns` (TOPIC_ROUND_ROBIN) for `turns/*`.
    """

    def __init__(self, url: str, **queue: Any) -> None:
        self.url = url
        with self.transaction() as connection:
            for name, kind in (
                ("free", QueueType.UNORDERED),
                ("line", QueueType.ORDERED),
                ("turns", QueueType.TOPIC_ROUND_ROBIN),
            ):
                given = {"max_retries": 2, **queue}
                declare_queue(
                    connection, QueueConfiguration(name, (f"{name}/*",), type=kind, **given)
                )

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction as the bookkeeper, on a connection that nobody else has meanwhile."""
        return bookkeeper(self.url)

    def add(self, topic: str, application: str = "tests", **given: Any) -> AddedJob:
        """Give a job."""
        with self.transaction() as connection:
            return add_job(connection, application, NewJob(topic, **given))

    def worker(self, instance: str = "i1", *, leads: bool = False) -> "Hand":
        """Return a worker with a lease."""
        return Hand(self, instance, leads=leads)

    def job(self, number: int) -> Job:
        """Return a job, unfinished or not."""
        with self.transaction() as connection:
            return read_jobs(connection, [number])[number]

    def rescue(self) -> list[EndDecision]:
        """Rescue once."""
        with self.transaction() as connection:
            return rescue.rescue(connection)

    def pass_time(self, seconds: float) -> None:
        """Let delays and reservations be over sooner: the rows say so."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE jobs.job SET ready_at = ready_at - make_interval(secs => %s), "
                "open_at = open_at - make_interval(secs => %s)",
                (seconds, seconds),
            )

    def rows(self, query: str, *given: Any) -> list[tuple[Any, ...]]:
        """Ask the database."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode(), given).fetchall()


class Hand:
    """One run on one instance; it does nothing by itself."""

    def __init__(self, store: Store, instance: str, *, leads: bool = False) -> None:
        self._store, self._leads = store, leads
        self.run = leases.WorkerRun.begin(instance)
        self.renew()

    def renew(self) -> list[leases.HeldAttempt]:
        """Keep the lease; return what it holds."""
        with self._store.transaction() as connection:
            leases.renew(connection, self.run)
            return leases.holdings(connection, self.run)

    def lose_lease(self) -> None:
        """Let it be over."""
        with self._store.transaction() as connection:
            connection.execute(
                "UPDATE jobs.worker SET lease_until = '-infinity' WHERE runtime_id = %s",
                (self.run.runtime_id,),
            )

    def claim(self, queue: str, places: int = 1, **request: Any) -> list[Claimed]:
        """Claim jobs of a queue, of all its topics by default."""
        with self._store.transaction() as connection:
            return self.claim_with(connection, queue, places, **request)

    def claim_with(
        self,
        connection: Connection,
        queue: str,
        places: int = 1,
        *,
        led: Sequence[str] = (),
        **request: Any,
    ) -> list[Claimed]:
        """Claim in a transaction that is open; who leads does so for all topics, or for `led`."""
        wanted = self._request(connection, queue, places, **request)
        led = led or (wanted.topics if self._leads else ())
        return claims.claim(connection, self.run, [wanted], led=led)

    def sees_waiting(self, queue: str) -> bool:
        """Return whether it knows of jobs that it may claim later."""
        with self._store.transaction() as connection:
            return claims.are_waiting(connection, [self._request(connection, queue, 1)])

    def _request(
        self, connection: Connection, queue: str, places: int, **request: Any
    ) -> ClaimRequest:
        layout = read_layout(connection)
        given = {
            "topics": sorted(topic for topic, name in layout.topics.items() if name == queue),
            "type": layout.queues[queue].configuration.type,
            **request,
        }
        return ClaimRequest(queue, places=places, **given)

    def topics(self, queue: str, places: int = 1, **request: Any) -> list[str]:
        """Claim, and return the topics."""
        return [one.job.topic for one in self.claim(queue, places, **request)]

    def end(
        self,
        claimed: Claimed,
        outcome: Outcome = Outcome.OK,
        *,
        wait: bool = True,
        **result: Any,
    ) -> Ending:
        """End an attempt."""
        with self._store.transaction() as connection:
            ended = Ended(claimed.claim, Result(outcome, **result))
            return finishing.finish(connection, [ended], wait=wait)[0]


def numbers(claimed: Sequence[Claimed]) -> list[int]:
    """Return the numbers of claimed jobs."""
    return [one.job.number for one in claimed]
