"""A group of requests to packages in the journal: slot, snapshot, outbox, journal (R5, R6).

The order of the steps is the promise: the slot before the snapshot, so that no package with a
higher offset shows an older state; the outbox's commit before the append, so that every package
in the journal is accounted for, whatever crashes.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import psycopg
from psycopg import Connection

from packhorse.clock import Clock
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import TopicMissing
from packhorse.runtime.metrics import (
    PUBLISHER_BUILD_SECONDS,
    PUBLISHER_OUTBOX_ENTRIES,
    PUBLISHER_OUTBOX_OLDEST_SECONDS,
    PUBLISHER_PACKAGE_BYTES,
)
from packhorse_services.publisher import known, outbox
from packhorse_services.publisher.delivery import Delivery, NotDelivered
from packhorse_services.publisher.distribute import Draft, Packer
from packhorse_services.publisher.outbox import Sealed, SlotState
from packhorse_services.publisher.pending import Pending
from packhorse_services.publisher.slot import Slot

logger = logging.getLogger(__name__)

_GROUP_BYTES = 16 * 1024 * 1024


class OutboxFull(Transient):
    """The journal is away and too much waits for it already; try again later."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the journal may be away before it is felt."""

    settle_s: float = 5.0
    """How long a group whose append failed is settled before its callers get no offset."""
    retry_s: float = 1.0
    """How long after a failure the journal is left alone."""
    outbox_packages: int = 1_000
    outbox_age_s: float = 30.0
    """Beyond either, requests are refused."""

    def is_over(self, backlog: SlotState) -> bool:
        """Tell whether too much waits, or for too long."""
        too_old = backlog.oldest_age_s > self.outbox_age_s
        return too_old or backlog.unsettled >= self.outbox_packages


class Publishing:
    """Publishes for one agent; used by one thread."""

    def __init__(
        self,
        slot: Slot,
        packer: Packer,
        delivery: Delivery,
        *,
        clock: Clock,
        patience: Patience = Patience(),
    ) -> None:
        self._slot, self._packer, self._delivery = slot, packer, delivery
        self._agent, self._clock, self._patience = packer.agent, clock, patience
        self._away_until = 0.0
        self._stopping = threading.Event()

    def publish(self, group: Sequence[Pending]) -> None:
        """Publish and answer requests, the first of them at least; the others wait.

        A request that is at fault is refused alone. Raises `SlotBusy` or `psycopg.Error`: then
        the same `Pending`s may be published again, which makes no second package of any.
        """
        with self._slot.hold() as connection:
            backlog = self._settle(connection)
            if backlog is not None and self._patience.is_over(backlog):
                _refuse(group, backlog)
                return
            exported = self._commit_all(connection, group)
            offsets = self._deliver(connection, exported) if backlog is None else {}
        for pending in exported:
            pending.answer(offsets.get(pending.package_id))

    def settle(self) -> bool:
        """Bring what an earlier holder of the slot left into the journal; false if it is away.

        Raises `SlotBusy` or `psycopg.Error`.
        """
        with self._slot.hold() as connection:
            return self._settle(connection) is None

    def stop(self) -> None:
        """Stop waiting for a journal that is away; may be called by any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Let go of the connection."""
        self._slot.close()

    def _settle(self, connection: Connection) -> SlotState | None:
        """Settle the outbox if need be; returns what waits when the journal is away."""
        with connection.pipeline(), connection.transaction():
            act_as(connection, BOOKKEEPER)
            state = outbox.read_state(connection)
        PUBLISHER_OUTBOX_ENTRIES.set(state.unsettled)
        PUBLISHER_OUTBOX_OLDEST_SECONDS.set(state.oldest_age_s)
        if state.unsettled == 0 and self._slot.verified:
            return None
        if self._clock.monotonic() < self._away_until:
            return state
        try:
            self._delivery.settle(connection, state)
        except (Transient, TopicMissing) as error:
            logger.warning("the journal is away", extra={"error": str(error)})
            self._away_until = self._clock.monotonic() + self._patience.retry_s
            return state
        self._slot.verified = True
        return None

    def _commit_all(
        self, connection: Connection, group: Sequence[Pending]
    ) -> dict[Pending, Sealed]:
        """Commit the group; a statement that fails costs its request alone, on the second try."""
        try:
            return self._commit(connection, group, savepoints=False)
        except psycopg.Error:
            if connection.closed:
                raise
            return self._commit(connection, group, savepoints=True)

    def _commit(
        self, connection: Connection, group: Sequence[Pending], *, savepoints: bool
    ) -> dict[Pending, Sealed]:
        """Export what is new in `group` from one snapshot, and commit it to the outbox."""
        with connection.transaction():
            act_as(connection, BOOKKEEPER)
            state = outbox.read_state(connection)
            fresh = known.answer(connection, self._agent, group)
            act_as(connection, EXPORTER)
            with PUBLISHER_BUILD_SECONDS.time():
                drafts = self._export(connection, fresh, savepoints=savepoints)
            numbered = outbox.number(list(drafts.values()), state)
            sealed = [outbox.seal(package) for package in numbered]
            if sealed:
                act_as(connection, BOOKKEEPER)
                outbox.advance(connection, state, len(sealed))
                outbox.write(connection, sealed)
                outbox.remember_stored(connection, list(drafts.values()))
                known.remember(connection, self._agent, list(drafts))
        for pending in drafts:
            pending.committed = True
        return dict(zip(drafts, sealed, strict=True))

    def _export(
        self, connection: Connection, group: Sequence[Pending], *, savepoints: bool
    ) -> dict[Pending, Draft]:
        """Return the packages of the first requests, as many as memory allows."""
        drafts: dict[Pending, Draft] = {}
        size = 0
        for pending in group:
            draft = self._draft(connection, pending, savepoints=savepoints)
            if draft is None:
                continue
            drafts[pending] = draft
            body = draft.message.body
            size += len(body.inline or b"") if body else 0
            if size > _GROUP_BYTES:
                break
        return drafts

    def _draft(self, connection: Connection, pending: Pending, *, savepoints: bool) -> Draft | None:
        """Return the package, or refuse the request and return None."""
        pending.package_id = self._packer.new_package_id()
        try:
            with connection.transaction() if savepoints else nullcontext():
                draft = self._packer.draft(connection, pending.request, pending.package_id)
        except Exception as error:
            if connection.closed or (isinstance(error, psycopg.Error) and not savepoints):
                raise
            if not isinstance(error, PackhorseError):
                logger.exception("an export failed", extra={"package_id": pending.package_id})
            pending.fail(error)
            return None
        PUBLISHER_PACKAGE_BYTES.observe(draft.message.entry.body_length)
        return draft

    def _deliver(
        self, connection: Connection, exported: dict[Pending, Sealed]
    ) -> Mapping[str, int | None]:
        """Append, and settle for a while what was not confirmed."""
        if not exported:
            return {}
        try:
            return self._delivery.deliver(connection, list(exported.values()))
        except NotDelivered:
            patience = self._clock.monotonic() + self._patience.settle_s
        while self._settle(connection) is not None and self._clock.monotonic() < patience:
            if self._clock.wait(self._stopping, self._patience.retry_s):
                break
        with connection.transaction():
            act_as(connection, BOOKKEEPER)
            return outbox.offsets_of(connection, [pending.package_id for pending in exported])


def _refuse(group: Sequence[Pending], backlog: SlotState) -> None:
    error = OutboxFull(
        f"the journal is away, and {backlog.unsettled} packages wait for it; try again later"
    )
    for pending in group:
        pending.fail(error)
