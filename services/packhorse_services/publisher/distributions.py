"""What became of one request at each subscriber.

The request itself is in the outbox, as long as the log keeps its package. What subscribers did
with it follows from their announcements and statuses.
"""

import asyncio
import enum
from dataclasses import dataclass
from datetime import datetime

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse.wire.messages import PackageEntry
from packhorse_services.publisher import outbox
from packhorse_services.publisher.deliveries import Deliveries, DeliveryTo, Pool
from packhorse_services.publisher.queues.queue import Queues

__all__ = ["Distribution", "DistributionState", "Distributions", "Pool"]


class DistributionState(enum.Enum):
    """Where a distribution is: committed, in the journal, done with by every live subscriber."""

    ACCEPTED = "ACCEPTED"
    QUEUED = "QUEUED"
    DISTRIBUTED = "DISTRIBUTED"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A request and its package; `offset` is None until the journal has it."""

    entry: PackageEntry
    accepted_at: datetime
    offset: int | None


class Distributions:
    """Answers for the distributions of one publisher agent."""

    def __init__(self, pool: Pool, queues: Queues, deliveries: Deliveries) -> None:
        self._pool, self._queues, self._deliveries = pool, queues, deliveries

    async def find(self, package_id: str) -> Distribution | None:
        """Return a distribution, or None when there is none or the log has forgotten it."""
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            found = await connection.execute(
                "SELECT entry, accepted_at, log_offset FROM bookkeeping.outbox "
                "WHERE package_id = %s",
                (package_id,),
            )
            row = await found.fetchone()
        if row is None:
            return None
        entry = outbox.entry_of(row[0])
        return (
            Distribution(entry, row[1], row[2])
            if entry.publisher_agent == self._queues.agent
            else None
        )

    async def deliveries(self, found: Distribution) -> list[DeliveryTo]:
        """Return each subscriber's part, by name."""
        return await self._deliveries.of(found.entry.package_id, found.offset)

    def state(self, offset: int | None) -> DistributionState:
        """Return where the package at `offset` is as a whole; costs no reading."""
        if offset is None:
            return DistributionState.ACCEPTED
        done = min(self._deliveries.done(), default=-1)
        return DistributionState.DISTRIBUTED if done >= offset else DistributionState.QUEUED

    async def wait(self, offset: int, seconds: float) -> DistributionState:
        """Return the state once every live subscriber is done with it, or after `seconds`.

        With no live subscriber there is nobody to wait for.
        """
        changes = self._deliveries.changes
        try:
            async with asyncio.timeout(seconds):
                while self._is_awaited(offset):
                    with changes.subscribed() as news:
                        if self._is_awaited(offset):
                            await news.wait()
        except TimeoutError:
            pass
        return self.state(offset)

    def _is_awaited(self, offset: int) -> bool:
        done = list(self._deliveries.done())
        return bool(done) and min(done) < offset
