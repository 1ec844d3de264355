"""What is refused before it is exported: too much, and what is for nobody that is known."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from packhorse.db.connect import PATIENCE_S
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.errors import PackhorseError, Transient
from packhorse.runtime.waiting import turn
from packhorse.wire.actions import is_probe
from packhorse_services.publisher.outbox.request import Accepted, DistributionRequest, Pending
from packhorse_services.publisher.publish import repeated_requests
from packhorse_services.publisher.publish.request_intake import PublisherBusy
from packhorse_services.publisher.queues.queue import Backlog, Queues, UnknownSubscriber

LOOKS = 2
"""How many requests are looked up at a time, each in a thread; it may wait for a lock."""


class QueueFull(Transient):
    """A live subscriber has more waiting than is allowed; try again when it has caught up."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What may wait for the slowest live subscriber of one publisher agent."""

    packages: int
    bytes: int
    """Of the bodies, as stored."""

    def is_over(self, backlog: Backlog) -> bool:
        """Return whether more waits than that."""
        return backlog.packages > self.packages or backlog.bytes > self.bytes


class Admission:
    """Decides whether a request is taken; by what is in memory, unless it is refused."""

    def __init__(
        self,
        queues: Queues,
        limits: QueueLimits,
        pool: Lender,
    ) -> None:
        """Take a pool that lends `LOOKS` connections to nobody else."""
        self._queues, self._limits, self._pool = queues, limits, pool
        self._places = asyncio.Semaphore(LOOKS)

    async def known(self, request: DistributionRequest) -> Accepted | None:
        """Return what the request has led to already, or None when it may be published.

        Only when too much waits it is looked up, and `QueueFull` raised for what is new; what is
        known of a repeated request is raised as `repeated_requests.answer` says. TEST is
        always taken. `UnknownSubscriber` is raised for a target that nobody knows.
        """
        obstacle = self._obstacle(request)
        if obstacle is None:
            return None
        if request.idempotency_key is not None or request.producer is not None:
            accepted = await self.repeated(request)
            if accepted is not None:
                return accepted
        raise obstacle

    def check_targets(self, targets: Sequence[str]) -> None:
        """Raise `UnknownSubscriber` for a target that nobody knows."""
        for target in targets:
            self._queues.subscriber(target)

    def check(self, request: DistributionRequest) -> None:
        """Raise `QueueFull` when too much waits for what the request would add."""
        obstacle = self._obstacle(request)
        if obstacle is not None:
            raise obstacle

    def _obstacle(self, request: DistributionRequest) -> PackhorseError | None:
        """Return why a request can't be taken now, if it is new."""
        try:
            self.check_targets(request.targets)
        except UnknownSubscriber as error:
            return error
        backlog = self._queues.backlog()
        if self._limits.is_over(backlog) and not is_probe(request.action):
            return QueueFull(self._reason(backlog))
        return None

    async def repeated(self, request: DistributionRequest) -> Accepted | None:
        """Return what a request with a key has led to already, or None.

        Raises `PublisherBusy` when too many others are looked up.
        """
        busy = PublisherBusy("the publisher is busy; send the request again")
        pending = Pending(request)
        async with turn(self._places, PATIENCE_S, busy):
            await asyncio.to_thread(self._look_up, pending)
        return pending.future.result() if pending.future.done() else None

    def _look_up(self, pending: Pending) -> None:
        with writing(self._pool.connection) as connection:
            repeated_requests.answer(connection, self._queues.agent, [pending], None, verified=True)

    def _reason(self, backlog: Backlog) -> str:
        return (
            f"subscriber {backlog.subscriber!r} has {backlog.packages} packages with "
            f"{backlog.bytes} bytes of agent {self._queues.agent!r} still to import; "
            f"{self._limits.packages} packages and {self._limits.bytes} bytes may wait. Try again "
            f"when it has caught up; `packhorse get queue {backlog.subscriber}` or GET "
            f"/queues/{quote(backlog.subscriber or '', safe='')} shows what holds it up"
        )
