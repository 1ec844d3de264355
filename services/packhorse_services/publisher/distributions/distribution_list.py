"""The distributions that the log still has, newest first: "where is my package?".

A package may have thousands of paths, so all of it is bounded by bytes too (R30).
"""

import asyncio
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from psycopg import AsyncConnection

from packhorse.content.node import is_within
from packhorse.db.transactions import as_bookkeeper
from packhorse.runtime.paging import foreign_cursor, read_cursor, write_cursor
from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.publisher.distributions.delivery_status import DeliveryStatusQuery, Pool
from packhorse_services.publisher.distributions.distribution_query import Distribution
from packhorse_services.publisher.outbox import outbox_rows
from packhorse_services.publisher.outcomes.distribution_state import (
    DistributionState,
    Reached,
    state_of,
)

_CHUNK, _CHUNK_BYTES = 500, 1024 * 1024
_SCANNED, _SCANNED_BYTES = 5_000, 8 * 1024 * 1024
"""How much one request looks at, whatever it finds: rows, and bytes of their entries."""

_FOUND_BYTES = 2 * 1024 * 1024
"""How much one page shows, but for a single entry that is larger."""

_CURSOR = re.compile(r"n([0-9]{1,18})\.([0-9]{1,18})")

Place = tuple[int, int]
"""The number of a package, by which the outbox orders them; grows with time."""


@dataclass(frozen=True, slots=True)
class DistributionFilter:
    """Which distributions are wanted."""

    path_prefix: str | None = None
    """Any path or deep path that is this one or lies below it, on segment boundaries (R29)."""
    node: str | None = None
    """A path that a package names, or has in one of its subtrees."""
    action: Action | None = None
    user: str | None = None
    state: DistributionState | None = None

    def wants(self, found: Distribution, state: DistributionState) -> bool:
        """Return whether a distribution in `state` is one of them."""
        entry = found.entry
        return (
            self.action in (None, entry.action)
            and self.user in (None, entry.user)
            and self.state in (None, state)
            and (self.path_prefix is None or _is_below(entry, self.path_prefix))
            and (self.node is None or _has(entry, self.node))
        )


def _is_below(entry: PackageEntry, prefix: str) -> bool:
    return any(is_within(path, prefix) for path in (*entry.paths, *entry.deep_paths))


def _has(entry: PackageEntry, node: str) -> bool:
    return node in entry.paths or any(is_within(node, deep) for deep in entry.deep_paths)


@dataclass(frozen=True, slots=True)
class DistributionPage:
    """Some distributions, and behind which place the next page begins; None at the end."""

    found: Sequence[tuple[Distribution, DistributionState]]
    behind: Place | None


class DistributionList:
    """Answers for one publisher agent."""

    def __init__(self, pool: Pool, deliveries: DeliveryStatusQuery, agent: str) -> None:
        self._pool, self._deliveries, self._agent = pool, deliveries, agent

    async def page(
        self, wanted: DistributionFilter, limit: int, behind: Place | None = None
    ) -> DistributionPage:
        """Return up to `limit` distributions; fewer when they are large, or hard to find.

        The page then has a `behind` all the same.
        """
        search = _Search(wanted, self._agent, limit, self._deliveries.reached(), behind)
        async with as_bookkeeper(self._pool) as connection:
            while search.may_look:
                # Thousands of paths take their time, in which the event loop has others to serve.
                stored = await _rows(connection, search.behind)
                rows = await asyncio.to_thread(_read, stored)
                targets = {row.found.offset: row.found.entry.targets for row in rows}
                search.other = await self._deliveries.not_imported(
                    connection, {at: names for at, names in targets.items() if at is not None}
                )
                if not await asyncio.to_thread(search.take, rows):
                    break
                if not rows or rows[-1].is_last:
                    return DistributionPage(search.found, None)
        return DistributionPage(search.found, search.behind)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the outbox."""

    place: Place
    found: Distribution
    size: int
    """Bytes of its entry."""
    in_this_log: bool
    """Whether its package is, or will be, in the log that the topic is now."""
    is_last: bool


@dataclass(slots=True)
class _Search:
    """What a request is looking for, has found, and has looked at."""

    wanted: DistributionFilter
    agent: str
    limit: int
    reached: Reached
    behind: Place | None
    other: AbstractSet[tuple[int, str]] = frozenset()
    """Of the rows in hand: which a subscriber did not import."""
    found: list[tuple[Distribution, DistributionState]] = field(default_factory=list)
    found_bytes: int = 0
    scanned: int = 0
    scanned_bytes: int = 0

    @property
    def may_look(self) -> bool:
        return self.scanned < _SCANNED and self.scanned_bytes < _SCANNED_BYTES

    def take(self, rows: Sequence[_Row]) -> bool:
        """Take what is wanted of `rows`; returns false when the page is full before their end."""
        for row in rows:
            distribution, entry = row.found, row.found.entry
            reached = self.reached.among(entry.targets)
            state = state_of(reached, entry.package_id, distribution.offset, self.other)
            is_ours = row.in_this_log and distribution.entry.publisher_agent == self.agent
            if is_ours and self.wanted.wants(distribution, state):
                if self._is_full(row.size):
                    return False
                self.found.append((distribution, state))
                self.found_bytes += row.size
            self.behind = row.place
            self.scanned, self.scanned_bytes = self.scanned + 1, self.scanned_bytes + row.size
        return True

    def _is_full(self, size: int) -> bool:
        too_large = bool(self.found) and self.found_bytes + size > _FOUND_BYTES
        return too_large or len(self.found) == self.limit


_Stored = tuple[int, int, bytes, datetime, int | None, bool, bool]


def _read(rows: Sequence[_Stored]) -> list[_Row]:
    return [
        _Row(
            (epoch, sequence),
            Distribution(outbox_rows.entry_of(entry), accepted_at, offset),
            size=len(entry),
            in_this_log=here,
            is_last=is_last,
        )
        for epoch, sequence, entry, accepted_at, offset, here, is_last in rows
    ]


async def _rows(connection: AsyncConnection, behind: Place | None) -> list[_Stored]:
    """Return the first rows behind a place: one at least, and then what is not too much."""
    epoch, sequence = behind or (2**63 - 1, 2**63 - 1)
    rows = await connection.execute(
        b"""
        SELECT epoch, sequence, entry, accepted_at, log_offset, here,
            nth = count AND count < %(rows)s
        FROM (
            SELECT *, count(*) OVER () AS count, row_number() OVER newest AS nth,
                sum(octet_length(entry)) OVER newest - octet_length(entry) AS before
            FROM (
                SELECT epoch, sequence, entry, accepted_at, log_offset,
                    """
        + outbox_rows.IN_THIS_LOG
        + b""" AS here
                FROM bookkeeping.outbox
                WHERE (epoch, sequence) < (%(epoch)s, %(sequence)s)
                ORDER BY epoch DESC, sequence DESC LIMIT %(rows)s
            ) AS chunk WINDOW newest AS (ORDER BY epoch DESC, sequence DESC)
        ) AS measured WHERE before < %(bytes)s ORDER BY nth
        """,
        {"epoch": epoch, "sequence": sequence, "rows": _CHUNK, "bytes": _CHUNK_BYTES},
    )
    return await rows.fetchall()


def write_place(place: Place) -> str:
    """Return the cursor of a page that begins behind `place`."""
    return write_cursor(f"n{place[0]}.{place[1]}")


def read_place(cursor: str | None) -> Place | None:
    """Return where the page begins; None without a cursor. Raises `Problem` 422."""
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(read_cursor(cursor))
    if found is None:
        raise foreign_cursor()
    return int(found[1]), int(found[2])
