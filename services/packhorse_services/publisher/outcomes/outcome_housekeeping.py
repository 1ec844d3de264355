"""Forgetting outcomes and subscribers that nobody will ask for again, in bounded batches (R18)."""

import logging
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from packhorse.bookkeeping import subscriber_rows
from packhorse.db.batches import in_batches
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import Lender
from packhorse.messaging.api import Journal
from packhorse.wire.topics import PACKAGE_RETENTION_MS
from packhorse_services.publisher.outcomes import outcome_rows
from packhorse_services.publisher.outcomes.outcome_rows import Keeping

logger = logging.getLogger(__name__)

_BATCH = 1_000
_WEEK_S = PACKAGE_RETENTION_MS / 1000


class OutcomeHousekeeping:
    """Of one publisher agent; any replica may do it at any time."""

    def __init__(
        self,
        pool: Lender,
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
                    lambda c: outcome_rows.forget(c, agent, identity, oldest, **limits),
                    lambda c: outcome_rows.forget_of_other_logs(c, agent, identity, **limits),
                    lambda c: subscriber_rows.remove_silent(c, agent, _WEEK_S, _BATCH),
                ),
            )
        )
        if removed:
            logger.info("forgot old outcomes and subscribers", extra={"rows": removed})

    def _repeat(self, forget: Callable[[Connection], int]) -> int:
        return in_batches(self._pool, BOOKKEEPER, forget, _BATCH)
