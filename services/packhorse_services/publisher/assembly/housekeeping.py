"""Forgetting what nobody will ask for again, in batches that hold no lock for long."""

import logging
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from packhorse.bookkeeping import subscriber_rows
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.messaging.api import Journal
from packhorse.messaging.faults import how_long
from packhorse.wire.topics import PACKAGE_RETENTION_MS
from packhorse_services.publisher.commands import command_rows as commands
from packhorse_services.publisher.outbox import idempotency, outbox_rows, producers, release_rows
from packhorse_services.publisher.outcomes import outcome_rows
from packhorse_services.publisher.queues.history import sample_rows

logger = logging.getLogger(__name__)

_BATCH, _MOST_BATCHES = 1_000, 100
_WEEK_S = PACKAGE_RETENTION_MS / 1000
_CENTURY_S = 100 * 365 * 24 * 3600.0
_KEEP_COMMANDS_S = 30 * 24 * 3600.0
_KEEP_RELEASES_S = 30 * 24 * 3600.0


class Housekeeping:
    """Removes what is old: keys, producers, commands, releases, samples, distributions."""

    def __init__(
        self,
        pool: Lender,
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
        keys = _repeat(self._pool, lambda c: idempotency.forget(c, self._keep_keys_s, _BATCH))
        unused = _repeat(self._pool, lambda c: producers.forget(c, self._keep_producers_s, _BATCH))
        _repeat(self._pool, lambda c: commands.forget(c, _KEEP_COMMANDS_S, _BATCH))
        _repeat(self._pool, lambda c: release_rows.forget(c, _KEEP_RELEASES_S, _BATCH))
        _repeat(self._pool, lambda c: sample_rows.forget(c, sample_rows.KEPT_S, _BATCH))
        identity = self._journal.identity(self._topic)
        oldest = self._journal.bounds(self._topic).oldest
        rows = _repeat(self._pool, lambda c: outbox_rows.forget_below(c, identity, oldest, _BATCH))
        if keys or rows or unused:
            forgotten = {"keys": keys, "distributions": rows, "producers": unused}
            logger.info("forgot old requests", extra=forgotten)


class OutcomeHousekeeping:
    """Removes old outcomes and silent subscribers of one publisher agent (R18).

    Any replica may do it at any time.
    """

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
        self._keep_failed_s = keep_failed_s

    def tidy(self) -> None:
        """Do it once. Raises `JournalUnavailable` or `psycopg.Error`; the next round goes on."""
        agent = self._agent
        identity = self._journal.identity(self._topic)
        oldest = self._journal.bounds(self._topic).oldest
        silence_s = _silence_s(self._journal.retention_ms(self._topic))
        limits: Any = {"failed_s": self._keep_failed_s, "limit": _BATCH}
        old: list[Callable[[Connection], int]] = [
            lambda c: outcome_rows.forget(c, agent, identity, oldest, **limits),
            lambda c: outcome_rows.forget_of_other_logs(
                c, agent, identity, others_s=_WEEK_S, **limits
            ),
            lambda c: subscriber_rows.remove_silent(c, agent, silence_s, _BATCH),
        ]
        removed = sum(_repeat(self._pool, forget) for forget in old)
        if removed:
            logger.info("forgot old outcomes and subscribers", extra={"rows": removed})


def _silence_s(retention_ms: int) -> float:
    """Return for how long the silent are known: a week, and longer where packages are kept longer.

    Never longer than the database can count back.
    """
    return min(max(_WEEK_S, how_long(retention_ms) / 1000), _CENTURY_S)


def _repeat(pool: Lender, forget: Callable[[Connection], int]) -> int:
    """Call `forget` until it removes less than a batch; return how many rows it has removed.

    Each time in a transaction of its own. What is left after a hundred times waits for the next
    round.
    """
    total = 0
    for _ in range(_MOST_BATCHES):
        with writing(pool.connection) as connection:
            removed = forget(connection)
        total += removed
        if removed < _BATCH:
            break
    return total
