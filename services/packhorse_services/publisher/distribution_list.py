"""The distributions that the log still has, newest first: "where is my package?" (LIM-8)."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import AsyncConnection

from packhorse.content.node import is_within
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse.runtime.problems import Problem
from packhorse.wire.messages import Action
from packhorse_services.publisher import outbox
from packhorse_services.publisher.deliveries import Pool
from packhorse_services.publisher.distributions import (
    Distribution,
    Distributions,
    DistributionState,
)

_CHUNK = 500
_SCANNED = 5_000
"""How many rows one request looks at, whatever it finds."""

_CURSOR = re.compile(rb"n([0-9]{1,18})\.([0-9]{1,18})")

Place = tuple[int, int]
"""The number of a package, by which the outbox orders them; grows with time."""


@dataclass(frozen=True, slots=True)
class DistributionFilter:
    """Which distributions are wanted."""

    path_prefix: str | None = None
    """Any path or deep path that is this one or lies below it, on segment boundaries (R29)."""
    action: Action | None = None
    user: str | None = None
    state: DistributionState | None = None

    def wants(self, found: Distribution, state: DistributionState) -> bool:
        """Tell whether a distribution in `state` is one of them."""
        entry, prefix = found.entry, self.path_prefix
        return (
            self.action in (None, entry.action)
            and self.user in (None, entry.user)
            and self.state in (None, state)
            and (
                prefix is None
                or any(is_within(path, prefix) for path in (*entry.paths, *entry.deep_paths))
            )
        )


@dataclass(frozen=True, slots=True)
class DistributionPage:
    """Some distributions, and behind which place the next page begins; None at the end."""

    found: Sequence[tuple[Distribution, DistributionState]]
    behind: Place | None


class DistributionList:
    """Answers for one publisher agent."""

    def __init__(self, pool: Pool, distributions: Distributions, agent: str) -> None:
        self._pool, self._distributions, self._agent = pool, distributions, agent

    async def page(
        self, wanted: DistributionFilter, limit: int, behind: Place | None = None
    ) -> DistributionPage:
        """Return up to `limit` distributions; fewer, or none, when that took too much looking.

        The page then has a `behind` all the same.
        """
        found: list[tuple[Distribution, DistributionState]] = []
        scanned, state_at = 0, self._distributions.states()
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            while scanned < _SCANNED:
                rows = await _rows(connection, behind)
                for place, distribution in rows:
                    state = state_at(distribution.offset)
                    if self._is_ours(distribution) and wanted.wants(distribution, state):
                        if len(found) == limit:
                            return DistributionPage(found, behind)
                        found.append((distribution, state))
                    behind = place
                if len(rows) < _CHUNK:
                    return DistributionPage(found, None)
                scanned += len(rows)
        return DistributionPage(found, behind)

    def _is_ours(self, found: Distribution) -> bool:
        return found.entry.publisher_agent == self._agent


async def _rows(
    connection: AsyncConnection, behind: Place | None
) -> list[tuple[Place, Distribution]]:
    rows = await connection.execute(
        """
        SELECT epoch, sequence, entry, accepted_at, log_offset FROM bookkeeping.outbox
        WHERE (epoch, sequence) < (%s, %s) ORDER BY epoch DESC, sequence DESC LIMIT %s
        """,
        (*(behind or (2**63 - 1, 2**63 - 1)), _CHUNK),
    )
    return [
        ((epoch, sequence), Distribution(outbox.entry_of(entry), accepted_at, offset))
        for epoch, sequence, entry, accepted_at, offset in await rows.fetchall()
    ]


def write_place(place: Place) -> str:
    """Return the cursor of a page that begins behind `place`."""
    text = f"n{place[0]}.{place[1]}".encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def read_place(cursor: str | None) -> Place | None:
    """Return where the page begins; None without a cursor. Raises `Problem` 422."""
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        text = b""
    found = _CURSOR.fullmatch(text)
    if found is None:
        wrong = {"pointer": "query/cursor", "detail": "no cursor of ours; begin without one"}
        raise Problem(422, detail="the cursor is none", errors=[wrong])
    return int(found[1]), int(found[2])
