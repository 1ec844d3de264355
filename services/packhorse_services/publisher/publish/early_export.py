"""Early exports: large requests are exported before the append lock is taken (ADR 0012).

So a large export delays nobody. What keeps the order (R6): a draft goes out only if no package
numbered since its snapshot carries state of the same paths; else it is exported again, and in
the end under the lock, like everything else.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import Connection, IsolationLevel

from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.transactions import bookkeeping
from packhorse.runtime.metrics import PUBLISHER_EARLY_EXPORTS
from packhorse_services.publisher.outbox import append_state, outbox_rows
from packhorse_services.publisher.outbox.append_state import AppendState, Number
from packhorse_services.publisher.outbox.request import Draft, Pending
from packhorse_services.publisher.publish import repeated_requests
from packhorse_services.publisher.publish.draft_export import DraftExporter, Exported, drafts_of
from packhorse_services.publisher.publish.first_look import FirstLook
from packhorse_services.publisher.publish.overlap import Footprint
from packhorse_services.publisher.publish.publishing import Publishing

EXPORTS = 3
"""How often a request is exported early; after that it is exported under the lock."""


class EarlyDrafts:
    """Drafts of one snapshot that was taken without the lock; see `draft_export.Drafts`.

    Whatever is numbered up to `seen` was in the snapshot, or carries nothing of the same paths.
    """

    def __init__(self, exported: Exported, seen: Number) -> None:
        self._exported, self._seen = dict(exported), seen
        self._footprints = {
            pending: Footprint(made.message.entry)
            for pending, made in exported.items()
            if isinstance(made, Draft)
        }

    def drafts(
        self, connection: Connection, look: FirstLook, fresh: Sequence[Pending], _: bool
    ) -> dict[Pending, Draft]:
        """Return the drafts that keep the order; refuse what could not be exported.

        Nothing is decided on a producer's request behind one that waits.
        """
        self.catch_up(connection, look.state)
        decided: dict[Pending, Draft | Exception] = {}
        waiting: set[str] = set()
        for pending in fresh:
            producer = pending.request.producer.producer if pending.request.producer else ""
            if pending not in self:
                waiting.add(producer)
            elif not producer or producer not in waiting:
                decided[pending] = self._exported[pending]
        return drafts_of(decided)

    def any_of(self, group: Sequence[Pending]) -> bool:
        """Return whether there is anything to answer one of `group` with."""
        return any(pending in self for pending in group)

    def __contains__(self, pending: Pending) -> bool:
        """Return whether there is a draft that is not stale, or a reason why there is none."""
        return pending in self._exported

    def catch_up(self, connection: Connection, state: AppendState) -> None:
        """Give up the drafts that a package numbered since then overlaps.

        `state` is what the same snapshot shows. When it does not show all those packages, as
        after a new epoch or once the log has forgotten some, every draft is given up.
        """
        epoch, last = self._seen
        found = 0
        for entry in outbox_rows.entries_above(connection, self._seen):
            found += 1
            later = Footprint(entry)
            self._give_up([one for one, mine in self._footprints.items() if mine.overlaps(later)])
        if state.epoch != epoch or found != state.sequence - last:
            self._give_up(list(self._footprints))
        self._seen = state.last

    def _give_up(self, stale: Sequence[Pending]) -> None:
        for pending in stale:
            PUBLISHER_EARLY_EXPORTS.labels("stale").inc()
            del self._footprints[pending], self._exported[pending]


class EarlyPublishing:
    """Publishes requests that may be large, for one agent; used by one thread."""

    def __init__(
        self,
        publishing: Publishing,
        draft_exporter: DraftExporter,
        open_connection: Callable[[], Connection],
        *,
        agent: str,
    ) -> None:
        self._publishing, self._draft_exporter, self._agent = publishing, draft_exporter, agent
        self._open = open_connection
        self._connection: Connection | None = None
        self._drafts: EarlyDrafts | None = None
        self._exports: dict[Pending, int] = {}

    @property
    def steps(self) -> int:
        """How far the exports have come."""
        return self._draft_exporter.steps + self._publishing.steps

    def publish(self, group: Sequence[Pending]) -> None:
        """Do the next step towards an answer to the first requests of `group`; the others wait.

        Raises what `Publishing.publish` raises: then the same group may be published again.
        """
        drafts = self._drafts if self._drafts and self._drafts.any_of(group) else None
        late = [pending for pending in group if self._exports.get(pending, 0) >= EXPORTS]
        if drafts is None and late:
            PUBLISHER_EARLY_EXPORTS.labels("under_lock").inc(len(late))
            self._publishing.publish(late)
        else:
            drafts = self._drafts = drafts or self._export(group)
            self._append(group, drafts)
            self._drafts = None
        self._exports = {one: n for one, n in self._exports.items() if not one.future.done()}

    def reconcile(self) -> bool:
        """Give back the connections, after a while without requests.

        The publisher's other thread looks after the outbox.
        """
        self.close()
        return True

    def stop(self) -> None:
        """Stop waiting for a journal that is away; may be called by any thread."""
        self._publishing.stop()

    def close(self) -> None:
        """Close the connections."""
        self._disconnect()
        self._publishing.close()

    def _export(self, group: Sequence[Pending]) -> EarlyDrafts:
        """Export the first of `group` from a snapshot of its own; nothing while it is no use."""
        with self._transaction() as connection:
            state = append_state.read_state(connection)
        if self._publishing.patience.is_over(state) and self._publishing.refuses(group):
            return EarlyDrafts({}, state.last)
        try:
            drafts = self._snapshot(group, savepoints=False)
        except psycopg.Error:
            if self._connection is None or self._connection.closed:
                raise
            drafts = self._snapshot(group, savepoints=True)
        for pending in group:
            self._exports[pending] = self._exports.get(pending, 0) + (pending in drafts)
        return drafts

    def _snapshot(self, group: Sequence[Pending], *, savepoints: bool) -> EarlyDrafts:
        with self._transaction() as connection:
            state = append_state.read_state(
                connection
            )  # the first query: the snapshot is that of it
            wanted = _not_known(connection, self._agent, group)
            exported = self._draft_exporter.export(connection, wanted, savepoints=savepoints)
        return EarlyDrafts(exported, state.last)

    def _append(self, group: Sequence[Pending], drafts: EarlyDrafts) -> None:
        """Look for what makes drafts stale without the lock, so that little is left to look at."""
        with self._transaction() as connection:
            drafts.catch_up(connection, append_state.read_state(connection))
        if drafts.any_of(group):
            self._publishing.publish(group, drafts)
            PUBLISHER_EARLY_EXPORTS.labels("used").inc(sum(one.committed for one in group))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._connection is None or self._connection.closed:
            self._connection = self._open()
        try:
            with bookkeeping(self._connection):
                yield self._connection
        except psycopg.Error:
            raise
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def early_connection(url: str, application: str) -> Connection:
    """Return a connection for `EarlyPublishing`. Raises `psycopg.OperationalError`."""
    timeouts = Timeouts(idle_in_transaction_ms=300_000)
    connection = connect(url, application, timeouts=timeouts, autocommit=True)
    with bookkeeping(connection):
        append_state.ensure_state(connection)
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    return connection


def _not_known(connection: Connection, agent: str, group: Sequence[Pending]) -> list[Pending]:
    """Return what is to be exported; what is known already need not be.

    A producer's request is judged under the lock alone: that locks the producer's row.
    """
    keyed = [pending for pending in group if pending.request.producer is None]
    repeated_requests.answer(connection, agent, keyed, None, verified=True)
    return [pending for pending in group if not pending.future.done()]
