"""Error queues as they are read: durable, and enough to distribute a package again (R18)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg_pool import AsyncConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse.errors import Permanent
from packhorse.wire.messages import Action, PackageEntry
from packhorse.wire.package_codec import ENTRY_HEADER, decode_entry
from packhorse.wire.record import Undecodable

Pool = AsyncConnectionPool[AsyncConnection]

_PAGE_BYTES = 2 * 1024 * 1024
"""How much one page holds of packages and reasons, but for a single entry that is larger (R30)."""


class NotInErrorQueue(Permanent):
    """The subscriber has not given up on a package with this offset, or it is forgotten."""


class PathsUnknown(Permanent):
    """What the package was about is not known any more; distribute the paths yourself."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: behind this entry, in the order in which they were recorded."""

    recorded_us: int = -1
    offset: int = -1


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
    def place(self) -> Place:
        """Where the next page begins after this entry."""
        return Place(self.recorded_us, self.offset)

    def to_distribute(self) -> PackageEntry:
        """Return what to ask for again. Raises `PathsUnknown`."""
        package = self.package
        if package is None or not (
            package.paths or package.deep_paths or package.action is Action.TEST
        ):
            raise PathsUnknown(
                f"the paths of package {self.package_id or self.offset} are not known; "
                "POST /distribute with the paths that you want at all subscribers"
            )
        return package


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """Some entries, oldest first, and behind which place the next page begins; None at the end."""

    found: Sequence[FailedPackage]
    behind: Place | None


_FAILED = """
    FROM bookkeeping.outcome
    WHERE agent = %(agent)s AND subscriber = %(subscriber)s AND status = 'REMOVED_FAILED'
"""
_SELECT = """
    SELECT package_id, log_offset AS offset, journal_id, attempts, reason, decided_at,
        (extract(epoch FROM recorded_at) * 1000000)::bigint AS recorded_us, redistributed_as, entry
"""
_SIZES = "SELECT octet_length(coalesce(entry, '')) + octet_length(reason)"
_BEHIND = """
    AND (recorded_at, log_offset) > (
        to_timestamp(0) + make_interval(secs => %(recorded_us)s::numeric / 1000000), %(behind)s)
    ORDER BY recorded_at, log_offset, journal_id LIMIT %(limit)s
"""


class ErrorQueues:
    """Of all subscribers of one publisher agent, straight from the database."""

    def __init__(self, pool: Pool, agent: str) -> None:
        self._pool, self._agent = pool, agent

    async def page(self, subscriber: str, behind: Place, limit: int) -> ErrorPage:
        """Return the first entries behind a place: `limit`, or fewer when they are large."""
        place = {"recorded_us": behind.recorded_us, "behind": behind.offset}
        sizes = await self._sizes(subscriber, limit=limit + 1, **place)
        fitting = sum(size <= _PAGE_BYTES for size in accumulate(sizes[:limit]))
        fitting = max(fitting, min(1, len(sizes)))
        found = await self._rows(
            f"{_SELECT} {_FAILED} {_BEHIND}", subscriber, limit=fitting, **place
        )
        return ErrorPage(found, found[-1].place if found and len(sizes) > fitting else None)

    async def _sizes(self, subscriber: str, **more: int) -> list[int]:
        parameters = {"agent": self._agent, "subscriber": subscriber, **more}
        statement: Any = f"{_SIZES} {_FAILED} {_BEHIND}"
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
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
                "GET /queues/{subscriber}/errors lists them"
            )
        return found[0]

    async def count(self, subscriber: str) -> int:
        """Return how many packages the subscriber gave up on."""
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            found: Any = await connection.execute(
                "SELECT count(*) FROM bookkeeping.outcome "
                "WHERE agent = %s AND subscriber = %s AND status = 'REMOVED_FAILED'",
                (self._agent, subscriber),
            )
            return int((await found.fetchone())[0])

    async def redistributed(self, subscriber: str, failed: FailedPackage, package_id: str) -> None:
        """Note which package carries the same paths again."""
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            await connection.execute(
                "UPDATE bookkeeping.outcome SET redistributed_as = %s WHERE agent = %s "
                "AND subscriber = %s AND journal_id = %s AND log_offset = %s",
                (package_id, self._agent, subscriber, failed.journal_id, failed.offset),
            )

    async def _rows(self, query: str, subscriber: str, **more: Any) -> list[FailedPackage]:
        parameters = {"agent": self._agent, "subscriber": subscriber, **more}
        statement: Any = query
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            async with connection.cursor(row_factory=class_row(FailedPackage)) as cursor:
                return await (await cursor.execute(statement, parameters)).fetchall()
