"""Keeps a worker's lease, and deals with jobs of workers and instances that are gone."""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Connection

from packhorse.clock import Clock
from packhorse.db.transactions import Connect, writing
from packhorse.jobs.store import leases, rescue
from packhorse.jobs.store.endings import EndDecision
from packhorse.jobs.store.leases import WorkerRun
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import JOBS_RESCUED
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of one process."""

    lease_s: float = leases.LEASE_S
    """How long its jobs stay its own after it was last heard of."""
    renewal_s: float = leases.RENEWAL_S
    poll_s: float = 1.0
    """How often it looks for jobs without a hint, and at what became of its own."""
    rescue_s: float = 10.0
    """How often it looks for jobs of workers that are gone."""
    places: int = 64
    """How many jobs of all queues it has at a time at most."""
    connections: int = 20
    """How many consumers are in `JobContext.completion` at a time; others wait, 10 s at most."""
    usual_parallel: int = max(15, os.cpu_count() or 1)
    """What a queue's `max_parallel` of -1 means."""


DEFAULTS = WorkerSettings()

_RESCUE_BATCH = 100
_FORGET_EVERY_S = 600.0
_DROP_EVERY_S = 60.0


def _tell(lost: Sequence[EndDecision]) -> None:
    for decision in lost:
        held = decision.held
        logger.warning(
            "job %d of %s was taken from %s, whose lease was over",
            held.number,
            held.topic,
            held.instance,
            extra={"job": held.number, "state": decision.state.value, "attempts": held.attempts},
        )


def _nobody(meanwhile: Callable[[], None]) -> int:  # noqa: ARG001
    return 0


class LeaseHeartbeat(WorkerComponent):
    """A component with a thread of its own, so that nothing else can delay a renewal.

    When it ends the lease stays until it runs out, or somebody gives it back.
    """

    def __init__(
        self,
        connect: Connect,
        run: WorkerRun,
        settings: WorkerSettings,
        clock: Clock,
        on_lease: Callable[[], None],
    ) -> None:
        """Call `on_lease` when there is a lease where there was none."""
        self._on_lease, self._clock = on_lease, clock
        self._connect, self._run_of_worker, self._settings = connect, run, settings
        self._valid_until = float("-inf")
        self._next_renewal = self._next_rescue = self._next_forget = float("-inf")
        self.drop_departed: Callable[[Callable[[], None]], int] = _nobody
        """Drops jobs of instances that left; calls what it is given after each batch."""
        self._next_drop = clock.monotonic() + _DROP_EVERY_S
        self._wake = threading.Event()
        self._outage = Outage(
            logger,
            "the lease for jobs can't be renewed now",
            "the lease for jobs is renewed again",
            clock,
        )
        self._worker = Worker("jobs-lease", self._run, wake=self._wake.set)

    def is_valid(self, now: float) -> bool:
        """Return whether the lease can't be over; `now` is monotonic."""
        return now < self._valid_until

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                pause = self.turn()
                self._outage.ended()
            except psycopg.Error as error:
                self._outage.failed(error)
                pause = min(1.0, self._settings.renewal_s)
            self._clock.wait(self._wake, pause)

    def turn(self) -> float:
        """Do what is due; return after how many seconds something will be."""
        self._renew()
        self._rescue()
        self._drop()
        ahead = min(self._next_renewal, self._next_rescue)
        return max(0.0, ahead - self._clock.monotonic())

    def _renew(self) -> None:
        requested_at = self._clock.monotonic()
        if requested_at < self._next_renewal:
            return
        with self._transaction() as connection:
            leases.renew(connection, self._run_of_worker, self._settings.lease_s)
        was_valid = self.is_valid(requested_at)
        self._valid_until = requested_at + self._settings.lease_s
        self._next_renewal = requested_at + self._settings.renewal_s
        if not was_valid:
            self._on_lease()

    def _rescue(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_rescue:
            return
        rescued = _RESCUE_BATCH
        while rescued == _RESCUE_BATCH and self.is_valid(self._clock.monotonic()):
            with self._transaction() as connection:
                lost = rescue.rescue(connection, _RESCUE_BATCH, lease_s=self._settings.lease_s)
            rescued = len(lost)
            JOBS_RESCUED.inc(rescued)
            _tell(lost)
            self._renew()
        if now >= self._next_forget:
            with writing(self._connect) as connection:
                rescue.forget_workers(connection)
            self._next_forget = now + _FORGET_EVERY_S
        self._next_rescue = now + self._settings.rescue_s

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Give a transaction whose statements go together: an error comes with a later one's."""
        with self._connect() as connection, connection.pipeline(), connection.transaction():
            leases.act_with(connection, self._run_of_worker.runtime_id)
            yield connection

    def _drop(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_drop:
            self._next_drop = now + _DROP_EVERY_S
            self.drop_departed(self._renew)
