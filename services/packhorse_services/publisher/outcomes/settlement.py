"""Up to where it is certain what a subscriber did: no import is shown that may be a failure (R18).

An announcement may be read before the statuses that were sent ahead of it. So the end of the
status topic is taken after the announcement came, and `settled_offset` counts once everything up
to that end is recorded. Every replica does this for itself; whoever records is told to hurry.
"""

import logging
import threading
from collections.abc import Callable, Mapping

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool, PoolTimeout

from packhorse.clock import Clock
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal
from packhorse.runtime.changes import Changes
from packhorse.runtime.lifecycle import Worker
from packhorse.runtime.metrics import PUBLISHER_STATUSES_LAG
from packhorse.wire.messages import SubscriberState
from packhorse_services.publisher.outcomes import known, store
from packhorse_services.publisher.outcomes.cursors import read_cursor
from packhorse_services.publisher.outcomes.progress import Progress
from packhorse_services.publisher.outcomes.turn import bookkeeping
from packhorse_services.publisher.queues.errors import ErrorCounts
from packhorse_services.publisher.queues.subscribers import FORGOTTEN_S, Subscribers

logger = logging.getLogger(__name__)

_IDLE_S = 2.0
_GAP_S = 0.02
_PATIENCE_S = 5.0
_LOOK_S = 0.05
_RETRY_S = 1.0
_COUNT_S = 30.0

Settled = tuple[str, int]
"""Journal id and offset."""


class NotSettled(PackhorseError):
    """What subscribers did before this publisher started has not been read yet."""


class Settlement:
    """A component. `settled` may be asked by any thread; `changes` tells that it has grown."""

    def __init__(
        self,
        journal: Journal,
        status_topic: str,
        pool: ConnectionPool[Connection],
        agent: str,
        *,
        subscribers: Subscribers,
        counts: ErrorCounts,
        progress: Progress,
        hurry: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._journal, self._topic, self._pool, self._agent = journal, status_topic, pool, agent
        self._subscribers, self._counts, self._progress = subscribers, counts, progress
        self._hurry, self._clock = hurry, clock
        self._settled: Mapping[str, Settled] = {}
        self._begun = threading.Event()
        self._news = threading.Event()
        self._counted: tuple[int, float] | None = None
        self._worker = Worker("settlement", self._run)
        self.changes = Changes()

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._worker.ask_to_end()
        self._news.set()
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what the thread died of."""
        return self._worker.failure()

    def check(self) -> None:
        """Raise `NotSettled` until everything from before the start is known."""
        if not self._begun.is_set():
            raise NotSettled("what subscribers did is still being read")

    def heard(self) -> None:
        """Say that an announcement came."""
        self._news.set()

    def settled(self, subscriber: str, lane: SubscriberState) -> int:
        """Return up to which offset it is certain what the lane did, by its journal's offsets."""
        journal_id, offset = self._settled.get(subscriber, ("", -1))
        certain = min(offset, lane.settled_offset) if journal_id == lane.journal_id else -1
        return max(certain, lane.started_offset)

    def is_certain(self) -> bool:
        """Tell whether what was known before the start is certain."""
        return self._begun.is_set()

    def _run(self, stopping: threading.Event) -> None:
        seeded = False
        while not stopping.is_set():
            try:
                if not seeded:
                    self._seed()
                    seeded = True
                self._round(stopping)
            except (PackhorseError, psycopg.Error, PoolTimeout) as error:
                logger.warning("statuses can't be settled", extra={"error": str(error)})
                self._clock.wait(stopping, _RETRY_S)
                continue
            if self._clock.wait(self._news, _IDLE_S):
                self._clock.wait(stopping, _GAP_S)  # many announcements become one round

    def _seed(self) -> None:
        """Take in whom the discovery topic may have forgotten."""
        with self._pool.connection() as connection, bookkeeping(connection):
            found = known.load(connection, self._agent, FORGOTTEN_S)
        for one in found:
            self._subscribers.seed(one.message, one.seen_ms, one.age_ms)

    def _round(self, stopping: threading.Event) -> None:
        self._news.clear()
        announced = self._announced()
        if announced != self._settled or not self._begun.is_set():
            if self._wait_for_statuses(stopping):
                self._settled = announced
                self._begun.set()
                self.changes.announce()
            elif not stopping.is_set():
                self._news.set()
        else:
            self._look()
        self._count()

    def _announced(self) -> dict[str, Settled]:
        following = self._subscribers.following()
        lanes = {one.name: one.lanes[self._agent] for one in following}
        return {name: (lane.journal_id, lane.settled_offset) for name, lane in lanes.items()}

    def _wait_for_statuses(self, stopping: threading.Event) -> bool:
        """Tell whether all statuses that are there now were recorded within a few seconds."""
        before = self._progress.offset
        end = self._journal.bounds(self._topic).next
        if end < before:  # the topic is another one, and nobody has noticed yet
            self._clock.wait(stopping, _RETRY_S)
            return False
        self._hurry()
        patience = self._clock.monotonic() + _PATIENCE_S
        while not (reached := self._progress.reached(end, _LOOK_S)):
            if stopping.is_set() or self._clock.monotonic() > patience:
                break
            self._look()
        PUBLISHER_STATUSES_LAG.set(max(0, end - self._progress.offset))
        return reached

    def _look(self) -> None:
        """Look how far another replica has come, when it is not this one that records."""
        if self._progress.here:
            return
        with self._pool.connection() as connection, bookkeeping(connection):
            cursor = read_cursor(connection, self._agent, self._topic)
        if cursor is not None:
            self._progress.look(cursor)

    def _count(self) -> None:
        """Count error queues anew when statuses came, and now and then."""
        version, now = self._progress.version, self._clock.monotonic()
        if self._counted is not None:
            before, at = self._counted
            if now < at + (_IDLE_S if version != before else _COUNT_S):
                return
        with self._pool.connection() as connection, bookkeeping(connection):
            self._counts.replace(store.failed_counts(connection, self._agent))
        self._counted = version, now
