"""A publisher process, as far as outcomes are concerned, that a state machine drives."""

from collections.abc import Callable
from functools import partial
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.connect import connect
from packhorse.messaging.api import Journal
from packhorse.messaging.reading import read_range
from packhorse.wire.topics import Topics
from packhorse_services.publisher.assembly.outcome_parts import next_epoch
from packhorse_services.publisher.commands.command_rows import note_status
from packhorse_services.publisher.outcomes.event_log import DatabaseSnapshots, EventAppender
from packhorse_services.publisher.outcomes.event_publisher import EventPublisher
from packhorse_services.publisher.outcomes.outcome_loop import OutcomeLoop
from packhorse_services.publisher.outcomes.packages_in_range import PackageSource
from packhorse_services.publisher.outcomes.progress import RecorderProgress
from packhorse_services.publisher.outcomes.recorder import Recorder
from packhorse_services.publisher.outcomes.recorder_lock import RecorderLock
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed
from packhorse_services.publisher.queues.error_counts import ErrorCounts
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import Subscribers
from tests.harness.clock import ManualClock
from tests.harness.publishing import AGENT, FragileJournal, Fuse, fragile_connection


class Replica:
    """One publisher process, as far as outcomes are concerned, that does a round when asked."""

    def __init__(
        self,
        url: str,
        journal: Journal,
        topics: Topics,
        pool: ConnectionPool[Connection],
        clock: ManualClock,
        preferred: Callable[[], str] = str,
    ) -> None:
        self._journal, self._topics, self.clock = journal, topics, clock
        self._fuse = Fuse(10**9)
        fragile: Any = FragileJournal(journal, self._fuse)
        self.subscribers = Subscribers(clock, AGENT)
        self.feed = QueueFeed(journal, topics.package, QueueCache(AGENT), clock=clock)
        self.feed.identity = journal.identity(topics.package)
        queues = Queues(self.feed, self.subscribers, ErrorCounts(), clock)
        self._lock = RecorderLock(AGENT, lambda: self._connection(url))
        snapshots = DatabaseSnapshots(pool)
        log = EventAppender(fragile, topics.event, AGENT, snapshots, partial(next_epoch, pool))
        source = PackageSource(journal, topics.package, self.feed.cache)
        self._recorder = Recorder(journal, topics, AGENT, note_status)
        self.outcome_loop = OutcomeLoop(
            self._lock,
            self._recorder,
            EventPublisher(journal, topics, AGENT, packages=source, log=log, clock=clock),
            queues,
            progress=RecorderProgress(),
            preferred=preferred,
        )

    def _connection(self, url: str) -> Connection:
        connection = connect(url, "tests-outcomes", autocommit=True)
        return fragile_connection(connection, self._fuse)

    def arm(self, steps: int) -> None:
        """Die after so many exchanges with the database and appends."""
        self._fuse.reset(steps)

    def tail(self) -> None:
        """Read what is new in the log into the cache."""
        bounds = self._journal.bounds(self._topics.package)
        cache = self.feed.cache
        if cache.next < bounds.oldest:
            cache.reset(bounds.oldest)
        cache.extend(list(read_range(self._journal, self._topics.package, cache.next, bounds.next)))

    def die(self) -> None:
        """Let the operating system close what the process had."""
        self._lock.release()
        self._recorder.close()
        self.feed.stop(0)
