"""Whether there is, or was, a subscriber of a name: a list about nobody would look like one."""

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import role_statement
from packhorse_services.publisher.queues.queue import Queues, UnknownSubscriber

_STORED = """
    SELECT EXISTS (SELECT FROM bookkeeping.known_subscriber WHERE agent = %(agent)s
            AND subscriber = %(subscriber)s)
        OR EXISTS (SELECT FROM bookkeeping.outcome WHERE agent = %(agent)s
            AND subscriber = %(subscriber)s)
        OR EXISTS (SELECT FROM bookkeeping.command WHERE agent = %(agent)s
            AND subscriber = %(subscriber)s)
"""


class SubscriberNames:
    """The names of one publisher agent's subscribers, also of those that left."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection], queues: Queues) -> None:
        self._pool, self._queues = pool, queues

    async def check(self, subscriber: str) -> None:
        """Raise `UnknownSubscriber` for whom nobody announced and nothing is stored of."""
        try:
            self._queues.subscriber(subscriber)
        except UnknownSubscriber:
            if not await self._is_stored(subscriber):
                raise

    async def _is_stored(self, subscriber: str) -> bool:
        if "\x00" in subscriber:  # no text in the database can hold it
            return False
        async with self._pool.connection() as connection:
            await connection.execute(role_statement(BOOKKEEPER))
            asked = {"agent": self._queues.agent, "subscriber": subscriber}
            row = await (await connection.execute(_STORED, asked)).fetchone()
        return bool(row and row[0])
