"""The one replica that keeps an agent's outcomes: statuses, subscribers, events.

It is the replica that holds the recorder lock; the others wait for it. It releases the lock, once,
for the instance that has the leader task by the topology; whoever then acquires it keeps it, so
that a holder of the leader task that fails is replaced.
The order of a round is what makes an event true: first the announcements, then the statuses that
were sent before them, then the events.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg
from psycopg import Connection

from packhorse.db.transactions import bookkeeping
from packhorse.errors import PackhorseError
from packhorse.messaging.api import RecordTooLarge, TopicMissing
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import PERIODIC_FAILURES
from packhorse.runtime.outage import Outage
from packhorse_services.publisher.outcomes.event_publisher import AnnouncedState, EventPublisher
from packhorse_services.publisher.outcomes.progress import RecorderProgress, keep_gap
from packhorse_services.publisher.outcomes.recorder import Recorder
from packhorse_services.publisher.outcomes.recorder_lock import RecorderLock
from packhorse_services.publisher.queues.known_subscribers import KnownSubscriberWriter
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import AnnouncedSubscriber

logger = logging.getLogger(__name__)

_IDLE_S = 0.5
_QUIET_S = 5.0
"""How long there is no round while no status has been seen: a hint may be lost."""
_RIVALS_POLL_S = 1.0
_RELEASED_S = 3.0 * _RIVALS_POLL_S
"""For so long a replica that failed does not ask for the lock: a rival that can do it comes first.
"""
_EVENTS_RETRY_S = 5.0
_EVENTS_TRIES = 2


class OutcomeLoop(WorkerComponent):
    """A component; when it ends another replica acquires the lock."""

    def __init__(
        self,
        lock: RecorderLock,
        recorder: Recorder,
        event_publisher: EventPublisher,
        queues: Queues,
        *,
        progress: RecorderProgress,
        preferred: Callable[[], str] = str,
    ) -> None:
        """Take `preferred` for which other instance is to hold the lock; "" for none."""
        self._lock, self._recorder, self._queues = lock, recorder, queues
        self._event_publisher = event_publisher
        self._progress, self._clock = progress, queues.clock
        self._known_subscribers = KnownSubscriberWriter(queues.agent)
        self._wake, self._news = threading.Event(), threading.Event()
        self._hurried = False
        self._notify_at, self._events_failed = 0.0, 0
        self._obstacle: RecordTooLarge | TopicMissing | None = None
        self._preferred, self._released_for = preferred, ""
        self._outage = Outage(
            logger, "outcomes can't be kept here", "outcomes are kept here again", self._clock
        )
        self._events_outage = Outage(
            logger, "events can't be published now", "events are published again", self._clock
        )
        self._worker = Worker("outcomes", self._run, wake=self.kick)

    def kick(self, awaited: bool = False) -> None:
        """Do a round soon; `awaited` says that somebody waits for what it records."""
        self._hurried = self._hurried or awaited
        self._wake.set()
        self._news.set()

    def hint(self) -> None:
        """Say that there are statuses in the journal; many of them become one round."""
        self._news.set()

    def check_events(self) -> None:
        """Raise what an operator has to mend before this replica's events go out, if known."""
        obstacle = self._obstacle
        if obstacle is not None:
            raise obstacle.with_traceback(None)

    def _run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                self._wake.clear()
                self._news.clear()
                self._hurried = False
                began = self._clock.monotonic()
                pause = self.try_round()
                if pause:
                    self._clock.wait(stopping, pause)
                else:
                    self._rest(began)
                    keep_gap(self._clock, began, stopping, hurried=self._hurried)
        finally:
            self._release()

    def _rest(self, began: float) -> None:
        """Wait until there may be something to do; statuses of half a second become one round."""
        self._clock.wait(self._news, _QUIET_S)
        self._clock.wait(self._wake, max(0.0, began + _IDLE_S - self._clock.monotonic()))

    def try_round(self) -> float:
        """Do a round if this replica holds the lock; return the seconds to pause, 0 if it does.

        Whatever fails may fail in this replica only, so it never keeps the lock.
        """
        try:
            if not self.round():
                self._obstacle = None
                return _RIVALS_POLL_S
            self._outage.ended()
            if self._events_failed < _EVENTS_TRIES and not self._is_another_preferred():
                return 0.0
        except (psycopg.Error, PackhorseError) as error:
            self._outage.failed(error)
        except Exception:
            logger.exception("a round of outcomes failed")
            PERIODIC_FAILURES.labels("outcomes").inc()
        self._release()
        return _RELEASED_S

    def _is_another_preferred(self) -> bool:
        """Return whether to release the lock for another replica: each is tried once in a row."""
        before, self._released_for = self._released_for, self._preferred()
        return self._released_for not in ("", before)

    def _release(self) -> None:
        self._events_failed = 0
        self._progress.leave()
        self._recorder.close()
        self._event_publisher.forget()
        self._lock.release()

    def round(self) -> bool:
        """Do a round; false when another replica holds the lock.

        Raises a `PackhorseError` of the journal, or `psycopg.Error`.
        """
        connection = self._lock.acquire()
        if connection is None:
            return False
        journal_id = self._queues.feed.identity  # before the announcements that it judges
        following = self._queues.subscribers.following()
        announced = [self._announced(one) for one in following]
        self._progress.update(self._recorder.record(connection))
        if self._known_subscribers.due(following):
            with bookkeeping(connection):
                self._known_subscribers.write(connection, following)
        if self._clock.monotonic() >= self._notify_at:
            self._notify(connection, announced, journal_id)
        return True

    def _announced(self, subscriber: AnnouncedSubscriber) -> AnnouncedState:
        live = not self._queues.subscribers.is_stale(subscriber)
        subscription = self._queues.subscription_of(subscriber)
        if self._queues.feed.positions.verdict(subscription) is None:  # soon it is known (R31)
            subscription = replace(subscription, settled_offset=-1, started_offset=-1)
        return AnnouncedState(subscriber.name, subscription, live)

    def _notify(
        self, connection: Connection, announced: Sequence[AnnouncedState], journal_id: str
    ) -> None:
        """Publish events; what fails there must not hold back the statuses."""
        if not journal_id == self._recorder.packages == self._queues.feed.identity:
            return  # offsets of the announcements were judged by another log
        try:
            if self._event_publisher.publish(connection, announced, journal_id):
                self._wake.set()
            self._events_failed, self._obstacle = 0, None
            self._events_outage.ended()
        except PackhorseError as error:
            self._events_outage.failed(error)
            if isinstance(error, RecordTooLarge | TopicMissing):  # it is so for each replica
                self._obstacle = error
            else:
                self._events_failed += 1
                self._obstacle = None
            self._event_publisher.forget()
            self._notify_at = self._clock.monotonic() + _EVENTS_RETRY_S
