"""What became of one request at each subscriber.

The request itself is in the outbox, as long as the log keeps its package. What subscribers did
with it follows from their announcements and statuses.
"""

import asyncio
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from packhorse.db.transactions import as_bookkeeper
from packhorse.wire.messages import PackageEntry
from packhorse_services.publisher.distributions.delivery_status import (
    DeliveryStatusQuery,
    DeliveryTo,
    Pool,
)
from packhorse_services.publisher.outbox import outbox_rows
from packhorse_services.publisher.outcomes.distribution_state import DistributionState, state_of
from packhorse_services.publisher.queues.queue import Queues

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """A request and its package; `offset` is None until the journal has it."""

    entry: PackageEntry
    accepted_at: datetime
    offset: int | None


class DistributionQuery:
    """Answers for the distributions of one publisher agent."""

    def __init__(self, pool: Pool, queues: Queues, deliveries: DeliveryStatusQuery) -> None:
        self._pool, self._queues, self._deliveries = pool, queues, deliveries
        self._ending = False

    async def find(self, package_id: str) -> Distribution | None:
        """Return a distribution, or None when there is none or the log has forgotten it."""
        async with as_bookkeeper(self._pool) as connection:
            found = await connection.execute(
                b"SELECT entry, accepted_at, log_offset FROM bookkeeping.outbox "
                b"WHERE package_id = %s AND " + outbox_rows.IN_THIS_LOG,
                (package_id,),
            )
            row = await found.fetchone()
        if row is None:
            return None
        entry = outbox_rows.entry_of(row[0])
        return (
            Distribution(entry, row[1], row[2])
            if entry.publisher_agent == self._queues.agent
            else None
        )

    async def deliveries(self, found: Distribution) -> list[DeliveryTo]:
        """Return each subscriber's part, by name."""
        package_id, accepted_ms = found.entry.package_id, found.accepted_at.timestamp() * 1000
        return await self._deliveries.of(package_id, found.offset, accepted_ms)

    async def state(self, found: Distribution) -> DistributionState:
        """Return where a package is as a whole; reads only once all live subscribers are done."""
        [state] = await self.states([(found.entry.package_id, found.offset, found.entry.targets)])
        return state

    async def states(
        self, packages: Sequence[tuple[str, int | None, Collection[str]]]
    ) -> Sequence[DistributionState]:
        """Return where packages are, by their ids, offsets and targets; all as of now."""
        everybody = self._deliveries.reached()
        reached = [everybody.among(targets) for _, _, targets in packages]
        done = {
            offset: targets
            for (_, offset, targets), there in zip(packages, reached, strict=True)
            if offset is not None and there.is_done(offset)
        }
        other: AbstractSet[tuple[int, str]] = frozenset()
        if done:
            async with as_bookkeeper(self._pool) as connection:
                other = await self._deliveries.not_imported(connection, done)
        return [
            state_of(there, package_id, offset, other)
            for (package_id, offset, _), there in zip(packages, reached, strict=True)
        ]

    async def wait(self, offset: int, targets: Collection[str], seconds: float) -> None:
        """Return once every live subscriber is done with it, or after `seconds`.

        `targets` are those that it is for; none: all. With no live one there is nobody to wait
        for.
        """
        changes, now = self._deliveries.changes, asyncio.get_running_loop().time
        deadline = now() + seconds
        while self._is_awaited(offset, targets) and now() < deadline:
            with changes.subscribed() as news:
                # A subscriber that falls silent sends nothing: so look now and then.
                if self._is_awaited(offset, targets):
                    await _first(news, min(_LOOK_S, deadline - now()))

    async def done(self, found: Distribution, seconds: float) -> Distribution:
        """Return a distribution once every live subscriber is done with it, or after `seconds`."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        while found.offset is None and now() < deadline and not self._ending:
            await asyncio.sleep(min(_LOOK_S, deadline - now()))
            found = await self.find(found.entry.package_id) or found
        if found.offset is not None:
            await self.wait(found.offset, found.entry.targets, deadline - now())
        return found

    @property
    def ending(self) -> bool:
        """Whether nobody waits any more."""
        return self._ending

    def end_waits(self) -> None:
        """Let all who wait, now or later, have their answer at once: the process is to end."""
        self._ending = True
        self._deliveries.changes.announce()

    def _is_awaited(self, offset: int, targets: Collection[str]) -> bool:
        return not self._ending and self._deliveries.is_awaited(offset, targets)


async def _first(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await news.wait()
