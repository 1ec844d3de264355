"""A subscription: the packages of one publisher agent, imported in order, session by session."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg import Connection

from packhorse.errors import PackhorseError
from packhorse.messaging.api import JournalUnavailable, OffsetOutOfRange, TopicMissing
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.wire.messages import DesiredState, SubscriptionState
from packhorse_services.subscriber.announce.subscription_report import UNKNOWN_HEAD
from packhorse_services.subscriber.commands.follower import CommandFollower, CommandsBehind
from packhorse_services.subscriber.importing.context import SessionContext
from packhorse_services.subscriber.importing.session import Session
from packhorse_services.subscriber.journal import position as positions
from packhorse_services.subscriber.journal import stored_filter
from packhorse_services.subscriber.journal.failures import Fenced, Gap, JournalMismatch, reason
from packhorse_services.subscriber.journal.journal_check import (
    StartPolicy,
    place,
    verify,
    verify_log,
)
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.journal.prefetch import Prefetch, PrefetchLimits
from packhorse_services.subscriber.lease import Lease
from packhorse_services.subscriber.snapshots.joining import SnapshotLoading

logger = logging.getLogger(__name__)

_LEASE_POLL_S = 1.0
_PREFETCH_END_S = 5.0
_LOADING_POLL_S = 0.25
_CHECK_JOURNAL_S = 10.0
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Whom a subscription follows, from where, and how far it reads ahead."""

    agent: str
    start: StartPolicy = StartPolicy.EARLIEST
    prefetch: PrefetchLimits = field(default_factory=PrefetchLimits)


class Subscription(WorkerComponent):
    """A component: one thread that imports while this worker holds the lease.

    The first of a worker that is stopped waits for the present imports of all, however long they
    take: a package whose import is cut off has lost an attempt.
    """

    def __init__(
        self,
        settings: SubscriptionSettings,
        connect: Callable[[], Connection],
        commands: CommandFollower,
        joining: SnapshotLoading,
        lease: Lease,
        context: SessionContext,
    ) -> None:
        self._settings, self._connect = settings, connect
        self._journal, self._topic = joining.journal, joining.topic
        self._commands, self._joining = commands, joining
        self._lease, self._ctx = lease, context
        self._wake = threading.Event()
        self._failures = 0
        self._worker = Worker(f"subscription {settings.agent}", self._run, wake=self._wake.set)
        context.clears.listen(self._wake.set)
        context.control.listen(self._wake.set)
        context.gate.listen(self._wake.set)

    def stop(self, timeout: float) -> None:
        """Wait for what is being imported, then up to `timeout` seconds for the thread's end.

        An import that stands still holds up the end of the program until its supervisor kills it.
        """
        self._worker.request_stop()
        self._joining.turns.end()
        self._worker.stop(timeout)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            epoch = self._lease.wait(_LEASE_POLL_S)
            if epoch is None:
                self._ctx.report.wait_for_lease()
                continue
            try:
                self._serve(epoch, stopping)
            except Fenced:
                self._pause(stopping, None)
            except (PackhorseError, psycopg.Error) as error:
                self._pause(stopping, error)
            except Exception as error:
                logger.exception("a subscription failed", extra={"agent": self._settings.agent})
                self._pause(stopping, error)
        self._ctx.report.wait_for_lease()

    def _serve(self, epoch: int, stopping: threading.Event) -> None:
        settings, journal = self._settings, self._journal
        self._show_stored()
        self._commands.catch_up(epoch)
        if self._is_stopped():
            self._stand_still(epoch, stopping)
            return
        if self._joining.turns.is_loading():
            self._wake.clear()
            self._ctx.clock.wait(self._wake, _LOADING_POLL_S)
            return
        with self._connect() as connection:
            try:
                position = self._place(connection, epoch)
            except Gap as gap:
                if settings.start is not StartPolicy.SNAPSHOT:
                    raise
                self._joining.join(connection, epoch, gap, stopping)
                return
            reader = journal.reader(self._topic, position.offset + 1, partition=0)
            prefetch = Prefetch(reader, settings.agent, settings.prefetch, self._wake.set)
            prefetch.start()
            try:
                self._work(Session(connection, position, prefetch, self._ctx), stopping)
            finally:
                prefetch.close(_PREFETCH_END_S)

    def _place(self, connection: Connection, epoch: int) -> Position:
        """Return where the subscription is, shown and checked against the journal."""
        settings, journal = self._settings, self._journal
        stored_filter.store(connection, self._ctx.importer.path_filter, epoch=epoch)
        position = place(
            connection, journal, self._topic, settings.agent, epoch=epoch, start=settings.start
        )
        self._show(position)
        self._ctx.on_progress()
        verify(journal, self._topic, position)
        return position

    def _is_stopped(self) -> bool:
        return self._ctx.control.desired(self._settings.agent) is DesiredState.STOP

    def _stand_still(self, epoch: int, stopping: threading.Event) -> None:
        """Hold nothing and say so, until something may have changed."""
        self._failures = 0
        self._wake.clear()
        self._ctx.report.healthy(SubscriptionState.STOPPED, head_time_ms=UNKNOWN_HEAD)
        self._ctx.on_progress()
        # Asked anew, for what came before the event was cleared wakes nobody.
        while self._is_stopped() and self._lease.epoch() == epoch:
            if self._wake.is_set() or stopping.is_set():
                return
            self._ctx.clock.wait(self._wake, _LEASE_POLL_S)

    def _show_stored(self) -> None:
        """Show where the subscription is before anything is waited for that may keep it there."""
        with self._connect() as connection:
            position = positions.load(connection, self._settings.agent)
        if position is not None:
            self._show(position)

    def _show(self, position: Position) -> None:
        self._ctx.report.update(
            journal_id=position.journal_id,
            epoch=position.epoch,
            mark=position.mark,
            started_offset=position.started_offset,
            incomplete=position.incomplete,
        )

    def _work(self, session: Session, stopping: threading.Event) -> None:
        clock, epoch = self._ctx.clock, session.position.epoch
        checked_at = clock.monotonic()
        while not stopping.is_set() and self._lease.epoch() == epoch:
            self._wake.clear()
            if self._is_stopped():
                return
            with self._joining.turns.step() as mine:
                if not mine:
                    return
                wait = session.step()
            self._failures = 0
            if clock.monotonic() - checked_at > _CHECK_JOURNAL_S:
                verify_log(self._journal, self._topic, session.position)
                checked_at = clock.monotonic()
            if wait > 0 and not stopping.is_set():
                clock.wait(self._wake, wait)

    def _pause(self, stopping: threading.Event, error: Exception | None) -> None:
        """Show what is wrong and wait before the next session, longer each time."""
        self._failures += 1
        pause = min(_LONGEST_PAUSE_S, 0.25 * 2.0 ** min(self._failures, 20))
        if error is not None:
            logger.warning(
                "a subscription can't go on now, and is tried again",
                extra={"agent": self._settings.agent, "error": reason(error), "in_s": pause},
            )
            before = self._ctx.report.state.state
            self._ctx.report.troubled(
                reason(error),
                state_after(error, before),
                is_placed=not isinstance(error, psycopg.Error),
            )
            self._ctx.on_progress()
        if not stopping.is_set():
            self._wake.clear()
            self._ctx.clock.wait(self._wake, pause)


def state_after(error: Exception, before: SubscriptionState) -> SubscriptionState:
    """Return what a subscription is in that can't go on; never what a standby looks like."""
    if isinstance(error, Gap) or _is_cut(error):
        return SubscriptionState.GAP
    if isinstance(error, JournalMismatch):
        return SubscriptionState.JOURNAL_MISMATCH
    if isinstance(error, JournalUnavailable | OffsetOutOfRange | TopicMissing | CommandsBehind):
        return SubscriptionState.WAITING_FOR_JOURNAL
    return SubscriptionState.RUNNING if before is SubscriptionState.WAITING_FOR_LEASE else before


def _is_cut(error: Exception) -> bool:
    """Return whether the log has forgotten what comes next while it was read (R13)."""
    return isinstance(error, OffsetOutOfRange) and error.wanted < error.bounds.oldest
