"""A group of requests to packages in the journal: lock, snapshot, outbox, journal (R5, R6).

The order of the steps is the promise: the lock before the snapshot, so that no package with a
higher offset shows an older state; the outbox's commit before the append, so that every package
in the journal is accounted for, whatever crashes.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import Connection

from packhorse.clock import Clock
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.errors import Transient
from packhorse.messaging.api import TopicMissing
from packhorse.runtime.metrics import PUBLISHER_OUTBOX_ENTRIES, PUBLISHER_OUTBOX_OLDEST_SECONDS
from packhorse_services.publisher.outbox import append_state, group_write, outbox_rows
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.append_state import AppendState, Unconfirmed
from packhorse_services.publisher.outbox.journal_appender import JournalAppender, NotDelivered
from packhorse_services.publisher.outbox.outbox_rows import Sealed
from packhorse_services.publisher.outbox.request import Draft, Pending
from packhorse_services.publisher.publish import prepared, repeated_requests
from packhorse_services.publisher.publish.draft_export import DraftExporter, Drafts
from packhorse_services.publisher.publish.first_look import first_look
from packhorse_services.publisher.publish.packer import Packer

logger = logging.getLogger(__name__)


class OutboxFull(Transient):
    """The journal is away and too much waits for it already; try again later."""


@dataclass(frozen=True, slots=True)
class JournalPatience:
    """How long the journal may be away before it is felt."""

    reconcile_s: float = 5.0
    """How long a group whose append failed is reconciled before its callers get no offset."""
    retry_s: float = 1.0
    """How long after a failure the journal is left alone."""
    outbox_packages: int = 1_000
    outbox_age_s: float = 30.0
    """Beyond either, requests are refused."""

    def is_over(self, backlog: AppendState | Unconfirmed) -> bool:
        """Return whether too much waits, or for too long."""
        too_old = backlog.oldest_age_s > self.outbox_age_s
        return too_old or backlog.unconfirmed >= self.outbox_packages


def check_room(pool: Lender, patience: JournalPatience, delivery: JournalAppender) -> None:
    """Raise what requests are refused with while the outbox is full, or holds too old a package.

    Raises `psycopg.Error` when the author's database is away.
    """
    with writing(pool.connection) as connection:
        waiting = append_state.unconfirmed(connection)
    if patience.is_over(waiting):
        delivery.check()
        raise OutboxFull(f"{waiting.unconfirmed} packages wait for the journal")


class Publishing:
    """Publishes for one agent; used by one thread."""

    def __init__(
        self,
        lock: AppendLock,
        packer: Packer,
        delivery: JournalAppender,
        *,
        clock: Clock,
        patience: JournalPatience = JournalPatience(),
    ) -> None:
        self._lock, self._draft_exporter, self._delivery = lock, DraftExporter(packer), delivery
        self._agent, self._clock, self.patience = packer.agent, clock, patience
        self._away_until = 0.0
        self._stopping = threading.Event()

    @property
    def steps(self) -> int:
        """How far the exports have come."""
        return self._draft_exporter.steps

    def publish(self, group: Sequence[Pending], drafts: Drafts | None = None) -> None:
        """Publish and answer requests, the first of them at least; the others wait.

        Those that `drafts` has no package for wait too; without it all are exported here. A
        request that is at fault is refused alone. Raises `AppendLockBusy` or `psycopg.Error`: then
        the same `Pending`s may be published again, which makes no second package of any.
        """
        source = drafts or self._draft_exporter
        with self._lock.hold() as connection:
            backlog: AppendState | None = None
            # Mostly nothing waits, and the commit's own look at the state says so.
            exported = self._commit_all(connection, group, source) if self._lock.verified else None
            if exported is None:
                backlog = self._reconcile(connection)
                if self._refuses(group, backlog):
                    return
                exported = self._commit_all(connection, group, source, settled=False) or {}
            offsets = self._deliver(connection, exported) if backlog is None else {}
        for pending in exported:
            pending.answer(offsets.get(pending.package_id))

    def refuses(self, group: Sequence[Pending]) -> bool:
        """Refuse requests if too much waits for a journal that is away; return whether it did.

        Raises `AppendLockBusy` or `psycopg.Error`.
        """
        with self._lock.hold() as connection:
            return self._refuses(group, self._reconcile(connection))

    def reconcile(self) -> bool:
        """Bring what an earlier holder of the lock left into the journal; false if it is away.

        Also notices that the topic was made anew, for which `publish` has no time.
        Raises `AppendLockBusy` or `psycopg.Error`.
        """
        with self._lock.hold() as connection:
            return self._reconcile(connection, look=True) is None

    def stop(self) -> None:
        """Stop waiting for a journal that is away; may be called by any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connection."""
        self._lock.close()

    def _refuses(self, group: Sequence[Pending], backlog: AppendState | None) -> bool:
        if backlog is None or not self.patience.is_over(backlog):
            return False
        error = OutboxFull(
            f"the journal is away, and {backlog.unconfirmed} packages wait for it; try again later"
        )
        for pending in group:
            pending.fail(self._delivery.obstacle or error)
        return True

    def _reconcile(self, connection: Connection, *, look: bool = False) -> AppendState | None:
        """Reconcile the outbox if need be; returns what waits when the journal is away.

        `look` asks for the log's identity when nothing waits.
        """
        state = append_state.read_state(connection)
        _measure(state)
        settled = state.unconfirmed == 0 and self._lock.verified
        if settled and not look:
            self._delivery.obstacle = None
            return None
        if self._clock.monotonic() < self._away_until:
            return state
        try:
            if not settled or not self._delivery.is_in(state.journal_id):
                self._delivery.reconcile(connection, state)
        except (Transient, TopicMissing, psycopg.DataError) as error:
            # DataError: what the journal holds must not keep requests from the outbox (R30).
            away = "the journal is away" if self._delivery.obstacle is None else "the outbox waits"
            logger.warning(away, extra={"error": str(error)})
            self._away_until = self._clock.monotonic() + self.patience.retry_s
            return state
        self._lock.verified = True
        return None

    def _commit_all(
        self,
        connection: Connection,
        group: Sequence[Pending],
        source: Drafts,
        *,
        settled: bool = True,
    ) -> dict[Pending, Sealed] | None:
        """Commit the group; a statement that fails costs its request alone, on the second try.

        With `settled` nothing is done, and None returned, when something waits in the outbox.
        """
        try:
            return self._commit(connection, group, source, settled=settled)
        except psycopg.Error:
            if connection.closed:
                raise
            return self._commit(connection, group, source, settled=settled, savepoints=True)

    def _commit(
        self,
        connection: Connection,
        group: Sequence[Pending],
        source: Drafts,
        *,
        settled: bool,
        savepoints: bool = False,
    ) -> dict[Pending, Sealed] | None:
        """Commit the drafts of what is new in `group`, which show one snapshot, to the outbox."""
        # No pipeline: one that is open while packages are packed keeps Postgres from ending the
        # transaction of a process that is paused, and so the append lock from everybody else.
        nodes = source is self._draft_exporter and not savepoints
        with first_look(connection, self._agent, group, nodes=nodes) as look:
            state = look.state
            if settled:
                if state.unconfirmed:
                    return None
                _measure(state)
                self._delivery.obstacle = None
            fresh = repeated_requests.answer(
                connection, self._agent, group, look.keys, verified=self._lock.verified
            )
            made = source.drafts(connection, look, fresh, savepoints)
            drafts = repeated_requests.in_order(fresh, prepared.without_used(connection, made))
            sealed = self._write(connection, state, drafts)
        for pending in drafts:
            pending.committed = True
        return dict(zip(drafts, sealed, strict=True))

    def _write(
        self, connection: Connection, state: AppendState, drafts: Mapping[Pending, Draft]
    ) -> list[Sealed]:
        """Write numbered packages, and what their requests have led to."""
        for pending, draft in drafts.items():
            pending.package_id = draft.message.entry.package_id
        numbered = outbox_rows.number(list(drafts.values()), state)
        sealed = [outbox_rows.seal(package) for package in numbered]
        if sealed:
            requests = [pending.request for pending in drafts]
            group_write.write(connection, self._agent, state, sealed, requests)
            outbox_rows.remember_stored(connection, list(drafts.values()))
            repeated_requests.remember(connection, list(drafts))
        return sealed

    def _deliver(
        self, connection: Connection, exported: dict[Pending, Sealed]
    ) -> Mapping[str, int | None]:
        """Append, and reconcile for a while what was not confirmed."""
        if not exported:
            return {}
        try:
            return self._delivery.deliver(connection, list(exported.values()))
        except NotDelivered:
            patience = self._clock.monotonic() + self.patience.reconcile_s
        while self._reconcile(connection) is not None and self._clock.monotonic() < patience:
            if self._clock.wait(self._stopping, self.patience.retry_s):
                break
        with connection.transaction():
            return outbox_rows.offsets_of(connection, [pending.package_id for pending in exported])


def _measure(state: AppendState) -> None:
    PUBLISHER_OUTBOX_ENTRIES.set(state.unconfirmed)
    PUBLISHER_OUTBOX_OLDEST_SECONDS.set(state.oldest_age_s)
