"""What became of one request at each subscriber.

The request itself is in the outbox, as long as the log keeps its package. What subscribers did
with it follows from their announcements and statuses.
"""

import asyncio
import enum
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse.wire.messages import PackageEntry
from packhorse_services.publisher import outbox
from packhorse_services.publisher.deliveries import Deliveries, DeliveryTo, Pool
from packhorse_services.publisher.queues.queue import Queues

__all__ = ["Distribution", "DistributionState", "Distributions", "Pool"]

_LOOK_S = 1.0


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
        self._ending = False

    async def find(self, package_id: str) -> Distribution | None:
        """Return a distribution, or None when there is none or the log has forgotten it."""
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            found = await connection.execute(
                b"SELECT entry, accepted_at, log_offset FROM bookkeeping.outbox "
                b"WHERE package_id = %s AND " + outbox.IN_THIS_LOG,
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
        return self.states()(offset)

    def states(self) -> Callable[[int | None], DistributionState]:
        """Return what tells the state of many packages by their offsets, all as of now."""
        done = min(self._deliveries.done(), default=-1)

        def state(offset: int | None) -> DistributionState:
            if offset is None:
                return DistributionState.ACCEPTED
            return DistributionState.DISTRIBUTED if done >= offset else DistributionState.QUEUED

        return state

    async def wait(self, offset: int, seconds: float) -> DistributionState:
        """Return the state once every live subscriber is done with it, or after `seconds`.

        With no live subscriber there is nobody to wait for.
        """
        changes, now = self._deliveries.changes, asyncio.get_running_loop().time
        deadline = now() + seconds
        while self._is_awaited(offset) and now() < deadline:
            with changes.subscribed() as news:
                # Who falls silent, and is waited for no more, tells nobody: so look now and then.
                if self._is_awaited(offset):
                    await _first(news, min(_LOOK_S, deadline - now()))
        return self.state(offset)

    async def done(self, found: Distribution, seconds: float) -> Distribution:
        """Return a distribution once every live subscriber is done with it, or after `seconds`."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        while found.offset is None and now() < deadline and not self._ending:
            await asyncio.sleep(min(_LOOK_S, deadline - now()))
            found = await self.find(found.entry.package_id) or found
        if found.offset is not None:
            await self.wait(found.offset, deadline - now())
        return found

    def end_waits(self) -> None:
        """Let all who wait, now or later, have their answer at once: the process is to end."""
        self._ending = True
        self._deliveries.changes.announce()

    def _is_awaited(self, offset: int) -> bool:
        return not self._ending and self._deliveries.is_awaited(offset)


async def _first(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await news.wait()
