"""Forgetting what nobody will ask for again, in batches that hold no lock for long."""

import logging
from collections.abc import Callable

from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.messaging.api import Journal
from packhorse_services.publisher import idempotency, outbox, producers
from packhorse_services.publisher.commands import store as commands

logger = logging.getLogger(__name__)

_BATCH = 1_000
_MOST_BATCHES = 100
_KEEP_COMMANDS_S = 30 * 24 * 3600.0


class Housekeeping:
    """Removes what is old: idempotency keys, producers, commands, forgotten distributions."""

    def __init__(
        self,
        pool: ConnectionPool[Connection],
        journal: Journal,
        topic: str,
        *,
        keep_keys_s: float,
        keep_producers_s: float,
    ) -> None:
        self._pool, self._journal, self._topic = pool, journal, topic
        self._keep_keys_s, self._keep_producers_s = keep_keys_s, keep_producers_s

    def tidy(self) -> None:
        """Do it once. Raises `JournalUnavailable` or `psycopg.Error`; the next round goes on."""
        keys = self._repeat(lambda c: idempotency.forget(c, self._keep_keys_s, _BATCH))
        unused = self._repeat(lambda c: producers.forget(c, self._keep_producers_s, _BATCH))
        self._repeat(lambda c: commands.forget(c, _KEEP_COMMANDS_S, _BATCH))
        oldest = self._journal.bounds(self._topic).oldest
        rows = self._repeat(lambda c: outbox.forget_below(c, oldest, _BATCH))
        if keys or rows or unused:
            forgotten = {"keys": keys, "distributions": rows, "producers": unused}
            logger.info("forgot old requests", extra=forgotten)

    def _repeat(self, forget: Callable[[Connection], int]) -> int:
        total = 0
        for _ in range(_MOST_BATCHES):
            with self._pool.connection() as connection:
                act_as(connection, BOOKKEEPER)
                removed = forget(connection)
            total += removed
            if removed < _BATCH:
                break
        return total
