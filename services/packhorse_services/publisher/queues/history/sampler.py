"""Takes a sample of an agent's queues; of several replicas the first one of a minute stores it."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from packhorse.db.pool import Lender
from packhorse.db.transactions import bookkeeping
from packhorse_services.publisher.queues.history import sample_rows
from packhorse_services.publisher.queues.history.sample_rows import QueueSample
from packhorse_services.publisher.queues.queue import Queues, SubscriberQueue

_TICKS = 4
"""After so many, 15 s apart, a rate is that of the last minute."""
_PATIENCE_S = 2.0
"""Not longer, for the queues' upkeep is done by the same thread."""
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
        """Store how the queues are, if nobody has in this minute.

        The first look is not stored: a process that has just begun may not know all subscribers.
        """
        if not self._queues.feed.begun:
            return
        known = self._queues.known()[:_MOST]
        now = self._tick(known)
        before = self._ticks[0] if self._ticks else None
        self._ticks.append(now)
        if before is not None and known:
            samples = [_sample(one, before, now) for one in known]
            with self._pool.connection(_PATIENCE_S) as connection, bookkeeping(connection):
                sample_rows.write(connection, self._queues.agent, samples)

    def _tick(self, known: Sequence[SubscriberQueue]) -> _Tick:
        cache = self._queues.feed.cache
        reached = ((one.subscriber.name, cache.position(one.subscription.offset)) for one in known)
        positions = {name: position for name, position in reached if position is not None}
        return _Tick(time.monotonic(), cache.filling, positions)


def _sample(one: SubscriberQueue, before: _Tick, now: _Tick) -> QueueSample:
    known = one.length if one.length is not None else one.extent.at_least or None
    lag_s = None if one.lag_s is None else round(one.lag_s, 1)
    name = one.subscriber.name
    reached = one.subscription.settled_offset, one.subscription.started_offset
    return QueueSample(name, lag_s, known, _rate(before, now, name), *reached)


def _rate(before: _Tick, now: _Tick, subscriber: str) -> float | None:
    """Return how many packages a minute it is done with; None for one that went back."""
    was, reached = before.positions.get(subscriber), now.positions.get(subscriber)
    if was is None or reached is None or before.filling != now.filling or reached < was:
        return None
    passed = now.at - before.at
    return round((reached - was) * 60 / passed, 1) if passed else None
