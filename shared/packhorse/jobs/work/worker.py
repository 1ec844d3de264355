"""The worker of a process: claims jobs that it has consumers for, and has them done."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

import psycopg

from packhorse.clock import SystemClock
from packhorse.db.connect import AWAY, retry_pause_s
from packhorse.db.transactions import Connect
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.store.claims import Claimed
from packhorse.jobs.store.leases import WorkerRun
from packhorse.jobs.work.attempt import RunningAttempt, StopReason, work
from packhorse.jobs.work.claiming import JobQueueCache, KnownInstances
from packhorse.jobs.work.context import AttemptContext
from packhorse.jobs.work.heartbeat import LeaseHeartbeat, WorkerSettings
from packhorse.jobs.work.running_jobs import ResultQueue, RunningJobs, Slots
from packhorse.jobs.work.worker_store import WorkerStore, WriteOutcome
from packhorse.runtime.lifecycle import Worker
from packhorse.runtime.metrics import JOBS_ACTIVE, JOBS_LEASE, JOBS_WAITED_SECONDS, report
from packhorse.runtime.outage import Outage
from packhorse.runtime.threads import Threads

logger = logging.getLogger(__name__)

_CLAIMING = "jobs can't be claimed or stored now", "jobs are claimed and stored again"
_AGAIN_S = 0.2
_MOST_FAILURES = 6
_MOST_ENDS = 200
_LAYOUT_POLLS = 10
"""After so many polls without a hint queues and topics are read again, and jobs are looked for
though none was waiting."""
_LAST_WORD_S = 2.0
"""Of the time for stopping, what is kept for giving jobs back."""


_METRICS = (
    *("packhorse_jobs_active", "packhorse_jobs_ended", "packhorse_jobs_lease"),
    *("packhorse_jobs_rescued", "packhorse_jobs_seconds", "packhorse_jobs_waited_seconds"),
)


@dataclass(frozen=True, slots=True)
class WorkerConnections:
    """How a worker reaches its database."""

    lend: Connect
    """To consumers, and for what has ended."""
    lend_for_lease: Connect
    """For the lease, which must not wait for them."""
    lend_for_claims: Connect
    """For claims, which must not wait for long: the lease may be over by then."""


class JobWorker:
    """A component that does jobs; nothing is claimed before its start, or while it stops.

    One thread has the claims, and stores what has ended together with the next claim. One keeps
    the lease. Every attempt has a thread of its own.
    """

    def __init__(
        self,
        connections: WorkerConnections,
        run: WorkerRun,
        consumers: Consumers,
        cluster_view: KnownInstances,
        settings: WorkerSettings,
        *,
        may_claim: Callable[[], bool] = lambda: True,
    ) -> None:
        """Claim nothing while `may_claim` says no."""
        report(*_METRICS)
        self._lend = connections.lend_for_claims
        self._consumers, self._settings = consumers, settings
        self._may_claim, self._clock = may_claim, SystemClock()
        self._bell = threading.Event()
        self._running_jobs = RunningJobs(Slots(settings.places, settings.usual_parallel))
        self._results = ResultQueue(connections.lend, self._bell)
        self._store = WorkerStore(run, self._running_jobs)
        self._queue_cache = JobQueueCache(consumers, cluster_view, _LAYOUT_POLLS * settings.poll_s)
        self.heartbeat = LeaseHeartbeat(
            connections.lend_for_lease, run, settings, self._clock, on_lease=self._bell.set
        )
        self._threads, self._outage = Threads("job"), Outage(logger, *_CLAIMING, self._clock)
        self._doubt, self._failures = False, 0
        self._next_look, self._grace = float("-inf"), 0.0
        self._leave_by: float | None = None
        self._shown: set[str] = set()
        self._worker = Worker("jobs", self._run)

    def start(self) -> None:
        """Begin; returns at once, whether the database answers or not."""
        self.heartbeat.start()
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """Ask consumers to end, wait for them, and give the rest back, within about `timeout`."""
        self._grace = timeout
        self._worker.request_stop()
        self._bell.set()
        self._worker.stop(timeout)
        self.heartbeat.stop(_LAST_WORD_S)

    def failure(self) -> BaseException | None:
        """Return what ended one of its threads, which neither jobs nor the database do."""
        return self._worker.failure() or self.heartbeat.failure()

    def hint(self, _: str = "") -> None:
        """Look for jobs at once: there may be some, or other queues."""
        self._queue_cache.hint()
        self._bell.set()

    def look_around(self) -> None:
        """Look for jobs at once: there may be other consumers on other instances."""
        self._queue_cache.change()
        self._bell.set()

    def _run(self, stopping: threading.Event) -> None:
        while True:
            self._bell.clear()
            self._results.take_into(self._running_jobs)
            if stopping.is_set() and self._is_left():
                break
            self._clock.wait(self._bell, self._turn(leaving=stopping.is_set()))
        self._leave()

    def _is_left(self) -> bool:
        """Return whether nothing is to be waited for any more."""
        now = self._clock.monotonic()
        if self._leave_by is None:
            self._leave_by = now + max(0.0, self._grace - _LAST_WORD_S)
            self._running_jobs.request_stop_of_all(StopReason.LEAVING)
        return self._running_jobs.is_settled or now >= self._leave_by

    def _turn(self, *, leaving: bool) -> float:
        """Do all that is to be done now; return after how many seconds to look again."""
        now = self._clock.monotonic()
        claims = self._check_lease(now) and not leaving and self._may_claim()
        written = WriteOutcome()
        try:
            self._write(written, now, claims=claims)
        except psycopg.Error as error:
            written.undo()
            return self._failed(error)
        self._doubt, self._failures = False, 0
        self._outage.ended()
        self._store.committed(written)
        self._begin(written.claimed)
        self._show()
        if written.held_up:
            return _AGAIN_S
        return self._pause(claims=claims, polls=written.waiting or bool(self._running_jobs.open()))

    def _check_lease(self, now: float) -> bool:
        """Ask everybody to end when others may have taken the jobs over."""
        valid = self.heartbeat.is_valid(now)
        JOBS_LEASE.set(valid)
        if not valid:
            self._running_jobs.request_stop_of_all(StopReason.LOST)
        return valid

    def _write(self, written: WriteOutcome, now: float, *, claims: bool) -> None:
        reads = claims and self._queue_cache.is_outdated(now)
        # What went unanswered may be committed after the first look, by a server that stalled.
        looks = self._doubt or (
            now >= self._next_look and (reads or bool(self._running_jobs.open()))
        )
        requests = self._queue_cache.requests(self._free()) if claims and not reads else []
        if not (looks or reads or requests or self._running_jobs.has_to_write(now)):
            return
        with self._lend() as connection, connection.pipeline(), connection.transaction():
            self._store.begin(connection)
            if looks:
                self._store.look(connection, written)
                self._store.note(connection, written)
            self._store.store_ends(connection, written, 1 if self._failures else _MOST_ENDS)
            self._store.time_out(connection, written, now)
            if reads:
                self._queue_cache.updating()
                self._queue_cache.update(self._store.read_layout(connection), now)
            if reads or (requests and len(written.stored) < self._running_jobs.unstored):
                requests = self._queue_cache.requests(self._free(written.stored))
            self._store.claim(connection, written, requests, leads=self._queue_cache.leads())
        if looks:
            self._next_look = now + self._settings.poll_s

    def _free(self, stored: Collection[RunningAttempt] | None = None) -> Slots:
        """Return the places as they are once these ends are stored, or all of them."""
        return self._running_jobs.slots.without(self._running_jobs.leaving(stored))

    def _begin(self, claimed: list[Claimed]) -> None:
        for one in claimed:
            self._queue_cache.had(one)
            _count_wait(one)
            consumer = self._consumers.find(one.job.topic)
            assert consumer is not None  # noqa: S101 - no topic without one is claimed
            running = RunningAttempt(one, self._clock)
            self._running_jobs.begin(running)
            context = AttemptContext(running, self._results)
            report = self._results.report
            self._threads.submit(work, running, consumer, context, report, self._clock)

    def _pause(self, *, claims: bool, polls: bool) -> float:
        now = self._clock.monotonic()
        if self._doubt:
            return 0.0
        if self._running_jobs.ends(1):
            return 0.0  # very many have ended
        if self._running_jobs.overdue(now):
            return _AGAIN_S  # a transaction holds one just now
        moments = [self._leave_by, self._running_jobs.next_deadline()]
        if polls:
            moments.append(now + self._settings.poll_s)
        moments.append(self._queue_cache.next_update() if claims else now + _AGAIN_S)
        return max(0.0, min(one for one in moments if one is not None) - now)

    def _failed(self, error: psycopg.Error) -> float:
        """Return how long to wait. What was sent may have been stored or not: look at first."""
        self._doubt, self._failures = True, self._failures + 1
        self._running_jobs.put_last()
        self._queue_cache.hint()
        if not isinstance(error, AWAY) and self._failures > _MOST_FAILURES:
            raise error
        self._outage.failed(error)
        pause = retry_pause_s(self._failures)
        if self._leave_by is None:
            return pause
        return min(pause, max(0.0, self._leave_by - self._clock.monotonic()))

    def _leave(self) -> None:
        """Give back what is left; the lease is not renewed any more by then."""
        self.heartbeat.stop(_LAST_WORD_S)
        self._results.close()
        try:
            with self._lend() as connection, connection.transaction():
                self._store.leave(self._store.begin(connection))
        except psycopg.Error as error:
            logger.warning("jobs stay this process's until its lease is over: %s", error)
        self._running_jobs.abandon()
        JOBS_LEASE.set(0)

    def _show(self) -> None:
        taken = self._running_jobs.slots.taken()
        for queue in {*self._shown, *taken}:
            JOBS_ACTIVE.labels(queue).set(taken.get(queue, 0))
        self._shown = set(taken)


def _count_wait(claimed: Claimed) -> None:
    job = claimed.job
    if job.started_at is not None:
        waited = (job.started_at - job.ready_at).total_seconds()
        JOBS_WAITED_SECONDS.labels(job.queue).observe(max(0.0, waited))
