"""A subscriber in the test's own process, driven step by step."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock, SystemClock
from packhorse.content import tree
from packhorse.messaging.api import Journal
from packhorse.packages.limits import LIMITS
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.wire.messages import Status, SubscriptionState
from packhorse_services.subscriber.announce.announcer import Identity
from packhorse_services.subscriber.announce.statuses import StatusSender
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from packhorse_services.subscriber.commands.clear_commands import ClearCommands, PendingClear
from packhorse_services.subscriber.commands.control import SubscriptionControl
from packhorse_services.subscriber.importing.attempts import Attempts, RetryPolicy
from packhorse_services.subscriber.importing.context import GroupLimits, SessionContext
from packhorse_services.subscriber.importing.imported_ids import ImportedIds, earlier_in
from packhorse_services.subscriber.importing.importer import Importer
from packhorse_services.subscriber.importing.remembered import PackageMemory
from packhorse_services.subscriber.importing.session import Session
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.journal_check import StartPolicy, place, verify
from packhorse_services.subscriber.journal.prefetch import Prefetch, PrefetchLimits
from packhorse_services.subscriber.lease import LEASE_SESSIONS, Connections, Lease
from packhorse_services.subscriber.staging.staging import Gate, OpenGate
from tests.harness.borrowing import borrowed
from tests.harness.feed import AGENT, TOPICS, Feed, page
from tests.harness.fold import Content, fold, plain
from tests.harness.waiting import eventually


@dataclass
class Worker:
    """One worker of a subscriber, driven step by step by the test's thread."""

    url: str
    journal: Journal
    blobs: BlobStore
    name: str = "sub"
    agent: str = AGENT
    editable: bool = True
    policy: RetryPolicy = field(default_factory=lambda: RetryPolicy(-1, 0.0, 0.0))
    limits: GroupLimits = field(default_factory=lambda: GroupLimits(passed_s=0))
    start: StartPolicy = StartPolicy.EARLIEST
    roots: Sequence[str] = ("/",)
    clock: Clock = field(default_factory=SystemClock)
    lease_s: float = 3600.0  # nobody renews it; tests of its end age the row
    idle_in_transaction_ms: int = 30_000
    lock_ms: int = 10_000
    gate: Gate = field(default_factory=OpenGate)
    remember_h: float = 0.0
    content_bytes: int = LIMITS.content_bytes
    path_filter: PathFilter = EVERYTHING

    def __post_init__(self) -> None:
        self.instance = uuid.uuid4().hex[:12]
        self.connections = Connections(
            self.url,
            self.instance,
            lock_ms=self.lock_ms,
            idle_in_transaction_ms=self.idle_in_transaction_ms,
        )
        self.lease = Lease(self.connections.lease, self.instance, self.lease_s, self.clock)
        self.lease_connection: psycopg.Connection | None = None
        self.clears, self.control = ClearCommands(), SubscriptionControl()
        self.report = SubscriptionReport(self.agent)
        self.attempts = Attempts(self.agent, self.policy, self.clock)
        self.imported = ImportedIds(earlier_in(self.journal, TOPICS.package))
        self.session: Session | None = None
        self.arrived = threading.Event()
        self.heard: list[tuple[SubscriptionState, bool]] = []
        self._open: list[Any] = []
        self._cleared: set[tuple[str, str, PendingClear]] = set()

    @property
    def context(self) -> SessionContext:
        return SessionContext(
            importer=Importer(
                self.name,
                self.blobs,
                self.roots,
                replace(LIMITS, content_bytes=self.content_bytes),
                PackageMemory(self.remember_h),
                self.path_filter,
            ),
            attempts=self.attempts,
            clears=self.clears,
            report=self.report,
            clock=self.clock,
            editable=self.editable,
            limits=self.limits,
            on_progress=self._hear,
            gate=self.gate,
            control=self.control,
            imported=self.imported,
        )

    def _hear(self, *, awaited: bool = False) -> None:
        """Note what would be announced, and whether somebody waits for it."""
        self.heard.append((self.report.state.state, awaited))

    def take_lease(self) -> int:
        """Take the lease, or renew it."""
        if self.lease_connection is None:
            self.lease_connection = self.connections.lease(LEASE_SESSIONS + self.instance)
            for limit in ("statement", "lock", "idle_in_transaction_session"):
                # The test's own thread may stand still as long as it likes.
                self.lease_connection.execute(f"SET {limit}_timeout = 0".encode())
        epoch = self.lease.attempt(self.lease_connection)
        assert epoch is not None, "another worker has the lease"
        return epoch

    def begin(self) -> Session:
        """Take the lease and open a session, as a subscription does."""
        self.end()
        epoch = self.take_lease()
        connection = self.connections.subscription()
        self._open.append(connection)
        position = place(
            connection, self.journal, TOPICS.package, self.agent, epoch=epoch, start=self.start
        )
        verify(self.journal, TOPICS.package, position)
        reader = self.journal.reader(TOPICS.package, position.offset + 1, partition=0)
        prefetch = Prefetch(reader, self.agent, PrefetchLimits(), self.arrived.set)
        prefetch.start()
        self._open.append(prefetch)
        self.session = Session(connection, position, prefetch, self.context)
        return self.session

    def run(self, until: Callable[[], bool] | None = None, deadline_s: float = 120.0) -> None:
        """Step until the subscription is at the log's end, or until a condition holds."""
        session = self.session or self.begin()
        end = self.journal.bounds(TOPICS.package).next - 1
        reached = until or (lambda: session.position.offset >= end)
        deadline = time.monotonic() + deadline_s
        while not reached():
            assert time.monotonic() < deadline, f"stuck at {session.position} {self.report.state}"
            self.arrived.clear()
            wait = session.step()
            if wait:
                self.arrived.wait(min(wait, 0.05))

    def step_until_failed(self, attempts: int) -> None:
        self.run(lambda: self.report.state.retries >= attempts)

    def step_until_reported(self, error: str) -> None:
        """Step until the subscription reports an error that contains this text."""
        self.run(lambda: error in self.report.state.last_error)

    def clear(self, up_to: int, command_id: str = "command") -> None:
        """Put a clear command into force beside those before, as the follower does."""
        journal_id = self.journal.identity(TOPICS.package)
        self._cleared.add((self.agent, journal_id, PendingClear(up_to, command_id)))
        self.clears.take(self._cleared)

    def end(self) -> None:
        """Close the session, as a crash would: nothing is given back."""
        for opened in self._open:
            opened.close()
        self._open, self.session = [], None

    def die(self) -> None:
        """Close everything; the lease row still names this worker."""
        self.end()
        if self.lease_connection is not None:
            self.lease_connection.close()
            self.lease_connection = None
            eventually(
                lambda: not self._lease_sessions(), interval=0.01, what="its session has ended"
            )

    def _lease_sessions(self) -> list[Any]:
        """Return the sessions by which others see that this worker lives."""
        name = LEASE_SESSIONS + self.instance
        return rows_of(
            self.url, f"SELECT pid FROM pg_stat_activity WHERE application_name = '{name}'"
        )

    def send_statuses(self) -> None:
        sender = StatusSender(
            self.connections.bookkeeper,
            self.journal,
            TOPICS.status,
            Identity(self.name, self.instance),
            may_send=lambda: True,
        )
        sender.send()
        sender.stop(0)


def content_of(url: str) -> Content:
    """Return what a database holds, in the words of the fold."""
    with borrowed(url) as connection:
        return content_in(connection)


def content_in(connection: psycopg.Connection) -> Content:
    """Return the same over a connection that is there already."""
    with connection.transaction():
        nodes = list(tree.stream(connection, "/"))
    return {node.path: plain(node) for node in nodes if node.path != "/"}


def rows_of(url: str, query: str) -> list[Any]:
    with borrowed(url) as connection:
        return connection.execute(query.encode()).fetchall()


def position_of(url: str, agent: str = AGENT) -> Mark:
    ((offset, package_id),) = rows_of(
        url,
        "SELECT log_offset, package_id FROM bookkeeping.position "
        f"WHERE publisher_agent = '{agent}'",
    )
    return Mark(offset, package_id)


def assert_is_the_fold(url: str, feed: Feed, removed: Sequence[int] = ()) -> None:
    """R8: the content is the fold of the journal up to the position, minus what was removed."""
    expected = fold(feed.records(), feed.blobs, removed=removed, up_to=position_of(url).offset)
    assert content_of(url) == expected


def failed(worker: Worker, feed: Feed) -> list[tuple[int, int]]:
    """Return (offset, attempts) of every package that was given up."""
    worker.send_statuses()
    return [
        (status.offset, status.attempts)
        for status in feed.statuses()
        if status.status is Status.REMOVED_FAILED
    ]


def given_up(feed: Feed, worker: Worker, offset: int) -> str:
    """Assert that exactly this package was given up, and not the next one; return why."""
    feed.add(page("/next"))
    worker.run()
    assert failed(worker, feed) == [(offset, 1)]
    assert "/next" in content_of(worker.url)
    return next(status.reason for status in feed.statuses() if status.reason)


def tamper(url: str) -> None:
    """Lose content, as an operator who needs a reset might have."""
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM content.node WHERE path <> '/'")
