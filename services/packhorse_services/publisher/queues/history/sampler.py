"""Takes a sample of an agent's queues; of several replicas the first one of a minute stores it."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import Lender
from packhorse.db.roles import act_as
from packhorse_services.publisher.queues.history import sample_rows
from packhorse_services.publisher.queues.history.sample_rows import QueueSample
from packhorse_services.publisher.queues.queue import Queues

EVERY_S = 15.0
_TICKS = 4
"""After so many a rate is that of the last minute."""
_MOST = 2_000
"""Subscribers of a sample."""


class _Tick(NamedTuple):
    at: float
    filling: int
    positions: Mapping[str, int]


class QueueSampler:
    """Of one publisher agent, in this process. For one thread."""

    def __init__(self, pool: Lender, queues: Queues) -> None:
        self._pool, self._queues = pool, queues
        self._ticks: deque[_Tick] = deque(maxlen=_TICKS)

    def sample(self) -> None:
        """Store how the queues are, if nobody has in this minute."""
        if not self._queues.feed.begun:
            return
        samples = self._taken()
        with self._pool.connection() as connection:
            act_as(connection, BOOKKEEPER)
            sample_rows.write(connection, self._queues.agent, samples)

    def _taken(self) -> Sequence[QueueSample]:
        cache = self._queues.feed.cache
        known = self._queues.known()[:_MOST]
        reached = {
            one.subscriber.name: position
            for one in known
            if (position := cache.position(one.subscription.offset)) is not None
        }
        now = _Tick(time.monotonic(), cache.filling, reached)
        before = self._ticks[0] if self._ticks else now
        self._ticks.append(now)
        return [
            QueueSample(
                one.subscriber.name,
                None if one.lag_s is None else round(one.lag_s, 1),
                one.extent.at_least,
                _rate(before, now, one.subscriber.name),
            )
            for one in known
        ]


def _rate(before: _Tick, now: _Tick, subscriber: str) -> float | None:
    """Return how many packages a minute it is done with; None for one that went back."""
    was, reached = before.positions.get(subscriber), now.positions.get(subscriber)
    if was is None or reached is None or before.filling != now.filling or reached < was:
        return None
    passed = now.at - before.at
    return round((reached - was) * 60 / passed, 1) if passed else None
