"""Forgetting outcomes and subscribers that nobody will ask for again, in bounded batches (R18)."""

import logging
from collections.abc import Callable
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.messaging.api import Journal
from packhorse.wire.topics import PACKAGE_RETENTION_MS
from packhorse_services.publisher.outcomes import known, store
from packhorse_services.publisher.outcomes.store import Keeping
from packhorse_services.publisher.outcomes.turn import bookkeeping

logger = logging.getLogger(__name__)

_BATCH = 1_000
_MOST_BATCHES = 100
_WEEK_S = PACKAGE_RETENTION_MS / 1000


class Tidying:
    """Of one publisher agent; any replica may do it at any time."""

    def __init__(
        self,
        pool: ConnectionPool[Connection],
        journal: Journal,
        topic: str,
        agent: str,
        *,
        keep_failed_s: float,
    ) -> None:
        self._pool, self._journal, self._topic, self._agent = pool, journal, topic, agent
        self._keeping = Keeping(keep_failed_s, _WEEK_S)

    def tidy(self) -> None:
        """Do it once. Raises `JournalUnavailable` or `psycopg.Error`; the next round goes on."""
        agent = self._agent
        identity = self._journal.identity(self._topic)
        oldest = self._journal.bounds(self._topic).oldest
        limits: Any = {"keeping": self._keeping, "limit": _BATCH}
        removed = sum(
            map(
                self._repeat,
                (
                    lambda c: store.forget(c, agent, identity, oldest, **limits),
                    lambda c: store.forget_of_other_logs(c, agent, identity, **limits),
                    lambda c: known.forget(c, agent, _WEEK_S, _BATCH),
                ),
            )
        )
        if removed:
            logger.info("forgot old outcomes and subscribers", extra={"rows": removed})

    def _repeat(self, forget: Callable[[Connection], int]) -> int:
        total = 0
        for _ in range(_MOST_BATCHES):
            with self._pool.connection() as connection, bookkeeping(connection):
                removed = forget(connection)
            total += removed
            if removed < _BATCH:
                break
        return total
