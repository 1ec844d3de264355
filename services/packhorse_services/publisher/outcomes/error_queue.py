"""Error queues as they are read: durable, and enough to distribute a package again (R18)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg_pool import AsyncConnectionPool

from packhorse.bookkeeping.audit_rows import AuditRow
from packhorse.db.transactions import as_bookkeeper
from packhorse.errors import Permanent
from packhorse.wire.actions import is_probe
from packhorse.wire.messages import PackageEntry
from packhorse.wire.package_codec import ENTRY_HEADER, decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.queues.error_counts import ErrorCounts

Pool = AsyncConnectionPool[AsyncConnection]

_PAGE_BYTES = 2 * 1024 * 1024
"""How much one page holds of packages and reasons, but for a single entry that is larger (R30)."""


class NotInErrorQueue(Permanent):
    """The subscriber has not given up on a package with this offset, or it is forgotten."""


class PathsUnknown(Permanent):
    """What the package was about is not known any more; distribute the paths yourself."""


@dataclass(frozen=True, slots=True)
class ErrorQueuePlace:
    """Where a page begins: behind this entry, in the order in which they were recorded."""

    recorded_us: int = -1
    offset: int = -1
    journal_id: str = ""
    """What is recorded together may be one offset of two logs."""


@dataclass(frozen=True, slots=True)
class FailedPackage:
    """A package that a subscriber gave up on."""

    package_id: str
    offset: int
    journal_id: str
    attempts: int
    reason: str
    decided_at: datetime
    recorded_us: int
    redistributed_as: str
    entry: bytes | None

    @property
    def package(self) -> PackageEntry | None:
        """What the package was about; None when that is not known."""
        try:
            return decode_entry({ENTRY_HEADER: self.entry}) if self.entry else None
        except Undecodable:
            return None

    @property
    def place(self) -> ErrorQueuePlace:
        """Where the next page begins after this entry."""
        return ErrorQueuePlace(self.recorded_us, self.offset, self.journal_id)

    def to_distribute(self) -> PackageEntry:
        """Return what to ask for again. Raises `PathsUnknown`."""
        package = self.package
        if package is None or not (package.paths or package.deep_paths or is_probe(package.action)):
            raise PathsUnknown(
                f"the paths of package {self.package_id or self.offset} are not known; "
                "POST /distribute with the paths that you want at all subscribers"
            )
        return package


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """Some entries, oldest first, and behind which place the next page begins; None at the end."""

    found: Sequence[FailedPackage]
    behind: ErrorQueuePlace | None


_FAILED = """
    FROM bookkeeping.outcome
    WHERE agent = %(agent)s AND subscriber = %(subscriber)s AND status = 'REMOVED_FAILED'
    AND dismissed_at IS NULL
"""
_SELECT = """
    SELECT package_id, log_offset AS offset, journal_id, attempts, reason, decided_at,
        (extract(epoch FROM recorded_at) * 1000000)::bigint AS recorded_us, redistributed_as, entry
"""
_SIZES = "SELECT octet_length(coalesce(entry, '')) + octet_length(reason)"
_BEHIND = """
    AND (recorded_at, log_offset, journal_id) > (
        to_timestamp(0) + make_interval(secs => %(recorded_us)s::numeric / 1000000),
        %(offset)s, %(journal_id)s)
    ORDER BY recorded_at, log_offset, journal_id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class ErrorSelection:
    """Which entries of an error queue are meant: those that all of this holds for."""

    offsets: Sequence[int] | None = None
    reason: str | None = None
    """A part of the reason, in either case of letters."""
    waiting: bool = False
    """Only those that were not distributed again."""


@dataclass(frozen=True, slots=True)
class ErrorQueueEntry:
    """One entry: an offset means nothing without its log."""

    journal_id: str
    offset: int


class ErrorQueues:
    """Of all subscribers of one publisher agent, straight from the database."""

    def __init__(self, pool: Pool, agent: str, counts: ErrorCounts) -> None:
        self._pool, self._agent, self._counts = pool, agent, counts

    async def page(self, subscriber: str, behind: ErrorQueuePlace, limit: int) -> ErrorPage:
        """Return the first entries behind a place: `limit`, or fewer when they are large."""
        place = asdict(behind)
        sizes = await self._sizes(subscriber, limit=limit + 1, **place)
        fitting = sum(size <= _PAGE_BYTES for size in accumulate(sizes[:limit]))
        fitting = max(fitting, min(1, len(sizes)))
        found = await self._rows(
            f"{_SELECT} {_FAILED} {_BEHIND}", subscriber, limit=fitting, **place
        )
        return ErrorPage(found, found[-1].place if found and len(sizes) > fitting else None)

    async def _sizes(self, subscriber: str, **more: Any) -> list[int]:
        parameters = {"agent": self._agent, "subscriber": subscriber, **more}
        statement: Any = f"{_SIZES} {_FAILED} {_BEHIND}"
        async with as_bookkeeper(self._pool) as connection:
            rows = await connection.execute(statement, parameters)
            return [size for (size,) in await rows.fetchall()]

    async def find(self, subscriber: str, offset: int, journal_id: str) -> FailedPackage:
        """Return the entry at an offset: of the log that is in use, else of the last one before.

        Raises `NotInErrorQueue`.
        """
        found = await self._rows(
            f"""{_SELECT} {_FAILED} AND log_offset = %(offset)s
            ORDER BY journal_id = %(journal_id)s DESC, recorded_at DESC LIMIT 1""",
            subscriber,
            offset=offset,
            journal_id=journal_id,
        )
        if not found:
            raise NotInErrorQueue(
                f"{subscriber[:80]!r} has no package with offset {offset} in its error queue; "
                f"`packhorse get errors {subscriber[:80]}` or GET "
                f"/queues/{quote(subscriber[:80], safe='')}/errors lists them"
            )
        return found[0]

    async def count(self, subscriber: str) -> int:
        """Return how many packages the subscriber gave up on."""
        async with as_bookkeeper(self._pool) as connection:
            statement: Any = f"SELECT count(*) {_FAILED}"
            requested = {"agent": self._agent, "subscriber": subscriber}
            found: Any = await connection.execute(statement, requested)
            return int((await found.fetchone())[0])

    async def select(
        self, subscriber: str, wanted: ErrorSelection, journal_id: str, limit: int
    ) -> Sequence[ErrorQueueEntry]:
        """Return which entries are meant, oldest first, `limit` at most.

        Of those at one offset that was named: the one of the log that is in use, else the newest.
        """
        from packhorse.db.composed import composed
        from packhorse_services.publisher.outcomes.error_search import selected

        statement = selected(
            self._agent,
            subscriber,
            offsets=wanted.offsets,
            reason=wanted.reason,
            waiting=wanted.waiting,
            limit=limit,
        )
        async with as_bookkeeper(self._pool) as connection:
            rows = await (await connection.execute(*composed(statement))).fetchall()
        entries = [ErrorQueueEntry(*row) for row in rows]
        if wanted.offsets is None:
            return entries
        meant = {one.offset: one for one in entries}
        meant |= {one.offset: one for one in entries if one.journal_id == journal_id}
        return list(meant.values())

    async def dismiss(
        self, subscriber: str, entries: Sequence[ErrorQueueEntry], user: str
    ) -> Sequence[int]:
        """Take entries off the queue, and write down who did it; return their offsets."""
        async with as_bookkeeper(self._pool) as connection:
            rows = await connection.execute(
                """
                UPDATE bookkeeping.outcome SET dismissed_at = clock_timestamp()
                FROM unnest(%s::text[], %s::bigint[]) AS meant (journal_id, log_offset)
                WHERE agent = %s AND subscriber = %s AND status = 'REMOVED_FAILED'
                AND outcome.journal_id = meant.journal_id
                AND outcome.log_offset = meant.log_offset AND dismissed_at IS NULL
                RETURNING outcome.log_offset
                """,
                (
                    [one.journal_id for one in entries],
                    [one.offset for one in entries],
                    self._agent,
                    subscriber,
                ),
            )
            offsets = sorted(offset for (offset,) in await rows.fetchall())
            if offsets:
                detail = {"offsets": offsets}
                done = AuditRow(subscriber, self._agent, uuid4().hex, user, "DISMISS", detail)
                await done.write_async(connection)
        self._counts.note(subscriber, await self.count(subscriber))
        return offsets

    async def redistributed(self, subscriber: str, failed: FailedPackage, package_id: str) -> None:
        """Note which package carries the same paths again."""
        async with as_bookkeeper(self._pool) as connection:
            await connection.execute(
                "UPDATE bookkeeping.outcome SET redistributed_as = %s WHERE agent = %s "
                "AND subscriber = %s AND journal_id = %s AND log_offset = %s",
                (package_id, self._agent, subscriber, failed.journal_id, failed.offset),
            )

    async def _rows(self, query: str, subscriber: str, **more: Any) -> list[FailedPackage]:
        parameters = {"agent": self._agent, "subscriber": subscriber, **more}
        statement: Any = query
        async with (
            as_bookkeeper(self._pool) as connection,
            connection.cursor(row_factory=class_row(FailedPackage)) as cursor,
        ):
            return await (await cursor.execute(statement, parameters)).fetchall()
