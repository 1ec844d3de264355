"""A lane: one publisher agent's packages in their order, imported in one session after another."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import psycopg
from psycopg import Connection

from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal
from packhorse.runtime.lifecycle import Worker
from packhorse.wire.messages import DesiredState, LaneState
from packhorse_services.subscriber import position as positions
from packhorse_services.subscriber.desk import Desk
from packhorse_services.subscriber.failures import Fenced, Gap, JournalMismatch, reason
from packhorse_services.subscriber.journal_check import StartPolicy, place, verify, verify_log
from packhorse_services.subscriber.lease import Lease
from packhorse_services.subscriber.position import Position
from packhorse_services.subscriber.prefetch import Prefetch, PrefetchLimits
from packhorse_services.subscriber.session import Session
from packhorse_services.subscriber.snapshots.joining import Joining

logger = logging.getLogger(__name__)

_LEASE_POLL_S = 1.0
_PREFETCH_END_S = 5.0
_LOADING_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Whom a lane follows, from where, and how far it reads ahead."""

    agent: str
    topic: str
    start: StartPolicy = StartPolicy.EARLIEST
    prefetch: PrefetchLimits = field(default_factory=PrefetchLimits)
    check_journal_s: float = 10.0
    longest_pause_s: float = 30.0


class Commands(Protocol):
    """The follower of the command topic, as a lane needs it."""

    def catch_up(self, epoch: int) -> None:
        """Return when every command that is in the log now is in force. Raises Transient."""
        ...


class Lane:
    """A component: one thread that imports while this worker holds the lease."""

    def __init__(
        self,
        settings: LaneSettings,
        connect: Callable[[], Connection],
        journal: Journal,
        lease: Lease,
        desk: Desk,
        *,
        commands: Commands,
        joining: Joining,
    ) -> None:
        self._joining = joining
        self._settings, self._connect, self._journal = settings, connect, journal
        self._lease, self._desk, self._commands = lease, desk, commands
        self._wake = threading.Event()
        self._failures = 0
        self._worker = Worker(f"lane {settings.agent}", self._run)
        desk.clearances.listen(self._wake.set)
        desk.control.listen(self._wake.set)
        desk.gate.listen(self._wake.set)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """End after the present import; one that takes longer is rolled back with the process."""
        self._worker.ask_to_end()
        self._wake.set()
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what ended the lane."""
        return self._worker.failure()

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            epoch = self._lease.wait(_LEASE_POLL_S)
            if epoch is None:
                self._desk.report.update(state=LaneState.WAITING_FOR_LEASE)
                continue
            try:
                self._serve(epoch, stopping)
            except Fenced:
                self._pause(stopping, None, None)
            except Gap as error:
                self._pause(stopping, error, LaneState.GAP)
            except JournalMismatch as error:
                self._pause(stopping, error, LaneState.JOURNAL_MISMATCH)
            except (PackhorseError, psycopg.Error) as error:
                self._pause(stopping, error, None)
            except Exception as error:
                logger.exception("a lane failed", extra={"agent": self._settings.agent})
                self._pause(stopping, error, None)
        self._desk.report.update(state=LaneState.WAITING_FOR_LEASE)

    def _serve(self, epoch: int, stopping: threading.Event) -> None:
        settings, journal = self._settings, self._journal
        self._commands.catch_up(epoch)
        if self._is_stopped():
            self._stand_still(epoch, stopping)
            return
        if self._joining.turns.is_loading():
            self._wake.clear()
            self._desk.clock.wait(self._wake, _LOADING_POLL_S)
            return
        with self._connect() as connection:
            try:
                position = self._place(connection, epoch)
            except Gap as gap:
                if settings.start is not StartPolicy.SNAPSHOT:
                    raise
                self._joining.join(connection, epoch, gap, stopping)
                return
            reader = journal.reader(settings.topic, position.offset + 1, partition=0)
            prefetch = Prefetch(reader, settings.agent, settings.prefetch, self._wake.set)
            prefetch.start()
            try:
                self._work(Session(connection, position, prefetch, self._desk), stopping)
            finally:
                prefetch.close(_PREFETCH_END_S)

    def _place(self, connection: Connection, epoch: int) -> Position:
        """Return where the lane is, shown and checked against the journal."""
        settings, journal = self._settings, self._journal
        position = place(
            *(connection, journal, settings.topic, settings.agent),
            epoch=epoch,
            start=settings.start,
        )
        self._show(position)
        self._desk.on_progress()
        verify(journal, settings.topic, position)
        return position

    def _is_stopped(self) -> bool:
        return self._desk.control.desired(self._settings.agent) is DesiredState.STOP

    def _stand_still(self, epoch: int, stopping: threading.Event) -> None:
        """Hold nothing and say so, until something may have changed."""
        self._failures = 0
        self._wake.clear()
        with self._connect() as connection:
            position = positions.load(connection, self._settings.agent)
        if position is not None:
            self._show(position)
        self._desk.report.healthy(LaneState.STOPPED, head_time_ms=0)
        self._desk.on_progress()
        # Asked anew, for what came before the event was cleared wakes nobody.
        while self._is_stopped() and self._lease.epoch() == epoch:
            if self._wake.is_set() or stopping.is_set():
                return
            self._desk.clock.wait(self._wake, _LEASE_POLL_S)

    def _show(self, position: Position) -> None:
        self._desk.report.update(
            journal_id=position.journal_id,
            epoch=position.epoch,
            offset=position.offset,
            started_offset=position.started_offset,
        )

    def _work(self, session: Session, stopping: threading.Event) -> None:
        clock, epoch = self._desk.clock, session.position.epoch
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
            if clock.monotonic() - checked_at > self._settings.check_journal_s:
                verify_log(self._journal, self._settings.topic, session.position)
                checked_at = clock.monotonic()
            if wait > 0 and not stopping.is_set():
                clock.wait(self._wake, wait)

    def _pause(
        self, stopping: threading.Event, error: Exception | None, state: LaneState | None
    ) -> None:
        """Show what is wrong and wait before the next session, longer each time."""
        self._failures += 1
        pause = min(self._settings.longest_pause_s, 0.25 * 2.0 ** min(self._failures, 20))
        if error is not None:
            logger.warning(
                "a lane waits", extra={"agent": self._settings.agent, "error": reason(error)}
            )
            self._desk.report.update(last_error=reason(error))
            if state is not None:
                self._desk.report.update(state=state)
            self._desk.on_progress()
        if not stopping.is_set():
            self._wake.clear()
            self._desk.clock.wait(self._wake, pause)
