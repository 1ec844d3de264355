"""Answers how queues were: as many points as are asked for, of all subscribers or of one."""

from datetime import datetime

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, Field

from packhorse.db.transactions import as_bookkeeper
from packhorse_services.publisher.queues.history import sample_rows
from packhorse_services.publisher.queues.history.sample_rows import HistoryWindow

_LAG = "The most seconds since its first package entered the journal; null where it is not known"
_RATE = "Packages a minute that the subscriber was done with, on average"


class Period(BaseModel):
    """Points of equal length, one after the other; each list of figures has one for each."""

    agent: str
    since: datetime = Field(description="When the first point begins; the last one still runs")
    step_seconds: int = Field(description="How long a point is")


class QueueHistory(Period):
    """How a queue was, point by point; null where nothing is known."""

    subscriber: str
    lag_seconds: list[float | None] = Field(description=_LAG)
    length: list[int | None] = Field(description="The most packages that waited, at least")
    rate: list[float | None] = Field(description=_RATE)


class QueueLag(BaseModel):
    """How far behind a subscriber was in the last hour."""

    subscriber: str
    lag_seconds: list[float | None] = Field(description=_LAG)
    rate: float | None = Field(description=f"Of the last two points, the last one. {_RATE}")


class QueueLags(Period):
    """How far behind all subscribers were in the last hour."""

    queues: list[QueueLag]


def window_of(hours: int, points: int) -> HistoryWindow:
    """Return at most so many points, of whole minutes, that cover so many hours."""
    step = -(-hours * 60 // points)
    return HistoryWindow(-(-hours * 60 // step), step)


class QueueHistories:
    """The samples of one publisher agent, whichever replica took them."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection], agent: str) -> None:
        self._pool, self._agent = pool, agent

    async def all(self, window: HistoryWindow) -> QueueLags:
        """Return how far behind all subscribers were."""
        async with as_bookkeeper(self._pool) as connection:
            since, rows = await sample_rows.read_all(connection, self._agent, window)
        most: dict[str, list[float | None]] = {}
        last: dict[str, float | None] = {}
        for point, subscribers, lags, rates in rows:
            if point >= window.points - 2:
                last.update(zip(subscribers, rates, strict=True))
            for subscriber, lag in zip(subscribers, lags, strict=True):
                points = most.get(subscriber) or most.setdefault(subscriber, [None] * window.points)
                if lag is not None:
                    points[point] = max(points[point] or 0.0, lag)
        queues = [
            QueueLag(subscriber=subscriber, lag_seconds=most[subscriber], rate=last.get(subscriber))
            for subscriber in sorted(most)
        ]
        return QueueLags(
            agent=self._agent, since=since, step_seconds=window.step * 60, queues=queues
        )

    async def one(self, window: HistoryWindow, subscriber: str) -> QueueHistory:
        """Return how the queue of a subscriber was."""
        async with as_bookkeeper(self._pool) as connection:
            since, rows = await sample_rows.read_one(connection, self._agent, window, subscriber)
        known = {point: (lag, length, rate) for point, lag, length, rate in rows}
        points = [known.get(number, (None, None, None)) for number in range(window.points)]
        return QueueHistory(
            agent=self._agent,
            since=since,
            step_seconds=window.step * 60,
            subscriber=subscriber,
            lag_seconds=[lag for lag, _, _ in points],
            length=[length for _, length, _ in points],
            rate=[rate for _, _, rate in points],
        )
