"""Ids of packages that are dealt with, for a journal that holds one under several numbers.

Numbers (`sequences`) find repeats for nothing; ids also find those that a publisher without
numbers, a mirrored topic or a restored outbox has made. Off unless it is asked for.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from psycopg import Connection

from packhorse.jobs.events.pruning import prune_events
from packhorse.runtime.periodic import Periodic
from packhorse_services.subscriber.journal.grouping import Group

_HOUR_S = 3_600.0
_INTERVAL_S = 600.0
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class PackageMemory:
    """Remembers packages of each publisher agent for some hours; 0: not at all.

    One that was removed, given up or skipped counts as much as one that was imported, as its
    number would (R27): a newer package may have followed, which a second copy must not overwrite.
    """

    hours: float = 0.0

    def first_times(self, connection: Connection, agent: str, group: Group) -> Group:
        """Return the group without packages that are known already, or twice in it.

        Nobody else can import in between: the position would have moved (R25).
        """
        ids = [mark.package_id for mark, _ in group.fresh if mark.package_id]
        if self.hours == 0 or not ids:
            return group
        rows = connection.execute(
            """
            SELECT package_id FROM bookkeeping.applied_package
            WHERE publisher_agent = %s AND package_id = ANY(%s)
            """,
            (agent, ids),
        )
        seen = {package_id for (package_id,) in rows.fetchall()}
        fresh = []
        for mark, package in group.fresh:
            if mark.package_id not in seen:
                fresh.append((mark, package))
            if mark.package_id:
                seen.add(mark.package_id)
        return replace(group, fresh=fresh)

    def imported(
        self, connection: Connection, agent: str, package_ids: Collection[str]
    ) -> list[str]:
        """Return those that this database has imported; statuses say which it has not."""
        if self.hours == 0 or not package_ids:
            return []
        rows = connection.execute(
            """
            SELECT package_id FROM bookkeeping.applied_package AS known
            WHERE publisher_agent = %s AND package_id = ANY(%s)
            AND applied_at > clock_timestamp() - interval '7 days' AND NOT EXISTS (
                SELECT FROM bookkeeping.status
                WHERE status.publisher_agent = known.publisher_agent
                AND status.package_id = known.package_id AND status.status <> 'IMPORTED')
            """,
            (agent, list(package_ids)),
        )
        return [package_id for (package_id,) in rows.fetchall()]

    def store(self, connection: Connection, agent: str, package_ids: Collection[str]) -> None:
        """Remember packages in the caller's transaction, the one that passes them."""
        ids = sorted({package_id for package_id in package_ids if package_id})
        if self.hours == 0 or not ids:
            return
        connection.execute(
            """
            INSERT INTO bookkeeping.applied_package (publisher_agent, package_id)
            SELECT %s, package_id FROM unnest(%s::text[]) AS passed (package_id)
            ON CONFLICT DO NOTHING
            """,
            (agent, ids),
        )

    def forget(self, connection: Connection) -> int:
        """Forget what is older by the database's clock, and return how many that were.

        The connection is in autocommit: each of the bounded batches is a transaction.
        """
        forgotten = 0
        while True:
            deleted = connection.execute(
                """
                DELETE FROM bookkeeping.applied_package WHERE ctid = ANY(ARRAY(
                    SELECT ctid FROM bookkeeping.applied_package
                    WHERE applied_at < clock_timestamp() - make_interval(secs => %s)
                    ORDER BY applied_at LIMIT %s))
                """,
                (self.hours * _HOUR_S, _BATCH),
            ).rowcount
            forgotten += deleted
            if deleted < _BATCH:
                return forgotten


class SubscriberHousekeeping(Periodic):
    """A component that removes old packages and events in the worker with the lease."""

    def __init__(
        self,
        memory: PackageMemory,
        connect: Callable[[], Connection],
        *,
        may_remove: Callable[[], bool],
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._memory, self._connect, self._may_remove = memory, connect, may_remove
        super().__init__("housekeeping", interval_s, self._round, at_once=True)

    def _round(self) -> None:
        if not self._may_remove():
            return
        with self._connect() as connection:
            if self._memory.hours:
                self._memory.forget(connection)
        prune_events(self._connect)
