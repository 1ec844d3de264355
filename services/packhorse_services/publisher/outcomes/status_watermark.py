"""Up to where it is certain what a subscriber did: no import is shown that may be a failure (R18).

An announcement may be read before the statuses that were sent ahead of it. So the end of the
status topic is taken after the announcement came, and `settled_offset` counts once everything up
to that end is recorded. Every replica does this for itself; whoever records is woken.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial

import psycopg
from psycopg_pool import PoolTimeout

from packhorse.bookkeeping import subscriber_rows
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal
from packhorse.runtime.changes import ChangeSignal
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import PUBLISHER_STATUSES_LAG
from packhorse.runtime.outage import Outage
from packhorse.wire.messages import SubscriberState
from packhorse_services.publisher.outcomes import outcome_rows
from packhorse_services.publisher.outcomes.progress import RecorderProgress, keep_gap, read_cursor
from packhorse_services.publisher.queues import known_subscribers
from packhorse_services.publisher.queues.queue import Queues

logger = logging.getLogger(__name__)

_IDLE_S = 2.0
_PATIENCE_S = 5.0
_LOOK_S = 0.05
_RETRY_S = 1.0
_COUNT_S = 30.0

Settled = tuple[str, int]
"""Journal id and offset."""


class NotSettled(PackhorseError):
    """What subscribers did before this publisher started has not been read yet."""


class StatusWatermark(WorkerComponent):
    """A component. `settled` may be asked by any thread; `changes` is called when it has grown."""

    def __init__(
        self,
        journal: Journal,
        status_topic: str,
        pool: Lender,
        queues: Queues,
        *,
        progress: RecorderProgress,
        wake_recorder: Callable[[bool], None],
    ) -> None:
        """Take `wake_recorder` to be called with whether somebody waits."""
        self._journal, self._topic, self._pool = journal, status_topic, pool
        self._agent, self._clock = queues.agent, queues.clock
        self._subscribers, self._positions = queues.subscribers, queues.feed.positions
        self._counts, self._progress = queues.errors, progress
        self._wake_recorder = wake_recorder
        self._settled: Mapping[str, Settled] = {}
        self._lock = threading.Lock()
        self._distrusted = 0
        self._begun = threading.Event()
        self._news = threading.Event()
        self._counted: tuple[int, float] | None = None
        self._outage = Outage(
            logger,
            "it can't be made certain now what subscribers did",
            "it is certain again what subscribers did",
            self._clock,
        )
        self._worker = Worker("status-watermark", self._run, wake=self._news.set)
        self.changes = ChangeSignal()

    def check(self) -> None:
        """Raise `NotSettled` until everything from before the start is known."""
        if not self._begun.is_set():
            raise NotSettled("what subscribers did is still being read")

    def notify(self) -> None:
        """Say that an announcement came."""
        self._news.set()

    def distrust(self) -> None:
        """Take back what is settled: the log may be another one. May be called by any thread."""
        with self._lock:
            self._distrusted += 1
            self._settled = {}
        self.changes.announce()
        self._news.set()

    def settled(self, subscriber: str, subscription: SubscriberState) -> int:
        """Return the offset up to which it is certain what the subscription did."""
        journal_id, offset = self._settled.get(subscriber, ("", -1))
        certain = (
            min(offset, subscription.settled_offset)
            if journal_id == subscription.journal_id
            else -1
        )
        return max(certain, subscription.started_offset)

    def is_certain(self) -> bool:
        """Return whether what was known before the start is certain."""
        return self._begun.is_set()

    def _run(self, stopping: threading.Event) -> None:
        seeded = False
        while not stopping.is_set():
            began, awaited = self._clock.monotonic(), self.changes.is_awaited
            try:
                if not seeded:
                    self._seed()
                    seeded = True
                self._round(stopping)
                self._outage.ended()
            except (PackhorseError, psycopg.Error, PoolTimeout) as error:
                self._outage.failed(error)
                self._clock.wait(stopping, _RETRY_S)
                continue
            if self._clock.wait(self._news, _IDLE_S):
                awaited = awaited or self.changes.is_awaited
                keep_gap(self._clock, began, stopping, hurried=awaited)

    def _seed(self) -> None:
        with writing(self._pool.connection) as connection:
            known_subscribers.seed(connection, self._subscribers, self._agent)

    def _round(self, stopping: threading.Event) -> None:
        self._news.clear()
        before, distrusted = self._settled, self._distrusted
        announced = self._announced(before)
        is_news = announced != before or not self._begun.is_set()
        is_settled = is_news and self._wait_for_statuses(stopping)
        if not is_news:
            self._look()
        self._count()  # before it is certain what was before the start: failures belong to that
        if is_settled:
            self._set_settled(announced, distrusted)
        elif is_news and not stopping.is_set():
            self._news.set()

    def _set_settled(self, announced: Mapping[str, Settled], distrusted: int) -> None:
        with self._lock:
            if distrusted != self._distrusted:
                return
            self._settled = announced
        self._begun.set()
        self.changes.announce()

    def _announced(self, before: Mapping[str, Settled]) -> dict[str, Settled]:
        """Return what subscriptions have announced whose position the log holds (R31).

        What is not known of a subscription yet leaves it where it was before.
        """
        subscriptions = {one.name: one.subscription for one in self._subscribers.following()}
        if not self._positions.check(subscriptions.values()):
            self._news.set()
        announced: dict[str, Settled] = {}
        for name, subscription in subscriptions.items():
            verdict = self._positions.verdict(subscription)
            if verdict:
                announced[name] = subscription.journal_id, subscription.settled_offset
            elif verdict is None and name in before:
                announced[name] = before[name]
        return announced

    def _wait_for_statuses(self, stopping: threading.Event) -> bool:
        """Return whether all statuses that are there now were recorded within a few seconds."""
        before = self._progress.offset
        end = self._journal.bounds(self._topic).next
        if end < before:  # the topic is another one, and nobody has noticed yet
            self._clock.wait(stopping, _RETRY_S)
            return False
        self._wake_recorder(self.changes.is_awaited)
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
        with writing(self._pool.connection) as connection:
            cursor = read_cursor(connection, self._agent, self._topic)
        if cursor is not None:
            self._progress.look(cursor)

    def _count(self) -> None:
        """Count error queues anew when statuses came, and now and then; and who is forgotten."""
        version, now = self._progress.version, self._clock.monotonic()
        if self._counted is not None:
            before, at = self._counted
            if now < at + (_IDLE_S if version != before else _COUNT_S):
                return
        with writing(self._pool.connection) as connection:
            self._counts.renew(partial(outcome_rows.failed_counts, connection, self._agent))
            self._subscribers.leave_out(subscriber_rows.forgotten(connection, self._agent))
        self._counted = version, now
