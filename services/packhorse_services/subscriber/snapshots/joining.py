"""Snapshots for the subscriptions of one worker.

Which to load and when, and what is reported meanwhile.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import Connection

from packhorse.blobs.api import BlobStore, BlobStoreUnavailable
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import Journal
from packhorse.runtime.metrics import SUBSCRIBER_SNAPSHOT_NODES, SUBSCRIBER_SNAPSHOTS
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.wire.messages import DesiredState, SubscriptionState
from packhorse_services.subscriber.announce.announcer import Identity
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from packhorse_services.subscriber.commands import reset
from packhorse_services.subscriber.commands.control import SubscriptionControl
from packhorse_services.subscriber.journal.failures import Fenced, Gap, reason
from packhorse_services.subscriber.lease import Lease
from packhorse_services.subscriber.snapshots.choice import NoSnapshot, choose, wanted
from packhorse_services.subscriber.snapshots.load import Load, load
from packhorse_services.subscriber.staging.staging import Staging


class SnapshotTurns:
    """Of one worker; another process is kept away by the lease, and by the epoch if need be.

    A load that was asked for waits for the steps that are under way, and no new one begins.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps = 0
        self._loading = self._ended = False

    def is_loading(self) -> bool:
        """Return whether a load is under way, or about to be, or no step may begin any more."""
        with self._changed:
            return self._loading or self._ended

    def end(self) -> None:
        """Let no step begin any more; return when those under way have ended, whenever that is."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: self._steps == 0)

    @contextmanager
    def step(self) -> Iterator[bool]:
        """Lend a turn for one step; false, and none is to be taken, for a load or at the end."""
        with self._changed:
            mine = not (self._loading or self._ended)
            self._steps += mine
        try:
            yield mine
        finally:
            with self._changed:
                self._steps -= mine
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Lend the only turn once all steps have ended; false when another has it or wants it."""
        with self._changed:
            mine = not self._loading
            if mine:
                self._loading = True
                self._changed.wait_for(lambda: self._steps == 0)
        try:
            yield mine
        finally:
            with self._changed:
                self._loading = self._loading and not mine
                self._changed.notify_all()


logger = logging.getLogger(__name__)

_REPORT_S = 1.0


class LoadInterrupted(Transient):
    """The worker is to end, or has lost the lease; the load was given up."""


@dataclass(slots=True, kw_only=True)
class SnapshotLoading:
    """Loads snapshots for all subscriptions of a worker at once, for they share the tree.

    `turns` keeps the subscriptions' steps away from a load. A snapshot that could not be loaded is
    taken again only when there is no better one.
    """

    identity: Identity
    reports: Sequence[SubscriptionReport]
    journal: Journal
    topic: str
    blobs: BlobStore
    lease: Lease
    control: SubscriptionControl
    roots: Sequence[str]
    remembers: bool = False
    """Whether ids of packages are kept, for a journal with repetitions."""
    staging: Staging | None = None
    on_progress: Callable[[], None] = lambda: None
    turns: SnapshotTurns = field(default_factory=SnapshotTurns)
    _failures: Counter[str] = field(default_factory=Counter)

    def join(self, connection: Connection, epoch: int, gap: Gap, stopping: threading.Event) -> None:
        """Load the best snapshot for subscriptions that can't go on because of `gap`.

        Returns also when another subscription is at it; look at the position again in any case. The
        lease has another epoch after a load.

        Raises:
            Gap: there is no snapshot that may be taken now, or it is not whole; nothing changed.
            Fenced, LoadInterrupted: nothing changed.
            BlobStoreUnavailable, psycopg.Error, and what the journal raises.
        """
        try:
            self._choice(connection)  # before anybody has to stand aside for it
            with self.turns.alone() as mine:
                if mine:
                    self._load(connection, self._choice(connection), epoch, stopping)
        except Gap as error:
            raise type(error)(f"{gap}; {error}") from error

    def _choice(self, connection: Connection) -> ContentSnapshot:
        agents = [report.state.publisher_agent for report in self.reports]
        for agent in agents:
            if self.control.desired(agent) is not DesiredState.RUN:
                raise NoSnapshot(
                    f"a snapshot is loaded once the subscription of {agent} runs again"
                )
        golden = self.staging.golden if self.staging else None
        requirement = wanted(
            connection,
            self.journal,
            self.topic,
            agents,
            subscriber=self.identity.subscriber,
            wait_for=golden,
        )
        found = choose(self.blobs, self.journal, self.topic, requirement, self._failures)
        for agent in agents if self.staging else ():
            if self.staging and not self.staging.is_past(agent, found.journal_id, found.offset):
                raise NoSnapshot(f"the snapshot at {found.offset} waits for {golden} to get there")
        return found

    def _load(
        self,
        connection: Connection,
        snapshot: ContentSnapshot,
        epoch: int,
        stopping: threading.Event,
    ) -> None:
        def check() -> None:
            if stopping.is_set() or self.lease.epoch() != epoch:
                raise LoadInterrupted("the load of a snapshot was given up")

        began = time.monotonic()
        about: dict[str, Any] = {"snapshot": snapshot.id, "offset": snapshot.offset}
        about["nodes"] = snapshot.nodes
        logger.info("a snapshot is being loaded", extra=about)
        try:
            with self._showing_progress(snapshot, check) as progress:
                work = self._work(snapshot, check, progress)
                after = load(connection, self.blobs, work, epoch)
        except (Fenced, LoadInterrupted, BlobStoreUnavailable):
            raise
        except (PackhorseError, psycopg.DataError, psycopg.IntegrityError) as error:
            logger.warning("a snapshot can't be loaded", extra=about, exc_info=True)
            raise self._failed(snapshot, error) from error
        self.lease.adopt(after)
        SUBSCRIBER_SNAPSHOTS.labels("loaded").inc()
        about["seconds"] = round(time.monotonic() - began, 3)
        logger.info("a snapshot was loaded", extra=about)

    def _work(
        self,
        snapshot: ContentSnapshot,
        check: Callable[[], None],
        progress: Callable[[int], None],
    ) -> Load:
        identity, ids = self.identity, self._package_ids(snapshot, check)
        return Load(identity.subscriber, snapshot, self.roots, ids, progress, identity.path_filter)

    def _failed(self, snapshot: ContentSnapshot, error: Exception) -> Gap:
        self._failures[snapshot.id] += 1
        SUBSCRIBER_SNAPSHOTS.labels("failed").inc()
        return Gap(f"the snapshot at offset {snapshot.offset} can't be loaded: {reason(error)}")

    @contextmanager
    def _showing_progress(
        self, snapshot: ContentSnapshot, check: Callable[[], None]
    ) -> Iterator[Callable[[int], None]]:
        """Lend what reports how many nodes were read.

        All subscriptions show it, then what they showed.
        """
        reported_at = float("-inf")

        def progress(read: int) -> None:
            nonlocal reported_at
            check()
            if time.monotonic() - reported_at < _REPORT_S:
                return
            reported_at = time.monotonic()
            SUBSCRIBER_SNAPSHOT_NODES.labels("read").set(read)
            self._show(
                f"loads the snapshot at offset {snapshot.offset}: "
                f"{read:,} of {snapshot.nodes:,} nodes"
            )

        SUBSCRIBER_SNAPSHOT_NODES.labels("all").set(snapshot.nodes)
        before = [(report, report.state) for report in self.reports]
        progress(0)
        try:
            yield progress
            SUBSCRIBER_SNAPSHOT_NODES.labels("read").set(snapshot.nodes)
        finally:
            for report, was in before:
                report.update(state=was.state, last_error=was.last_error)

    def _show(self, text: str) -> None:
        for report in self.reports:
            report.update(state=SubscriptionState.LOADING, last_error=text)
        self.on_progress()

    def _package_ids(
        self, snapshot: ContentSnapshot, check: Callable[[], None]
    ) -> dict[str, Sequence[str]]:
        """Return the ids that each subscription would have stored had it imported the log."""
        if not self.remembers:
            return {}
        return {
            agent: list(
                reset.target(
                    self.journal,
                    self.topic,
                    reset.ResetPoint(agent, snapshot.journal_id, snapshot.offset),
                    remember=True,
                    check=check,
                ).package_ids
            )
            for agent in snapshot.publisher_agents
        }
