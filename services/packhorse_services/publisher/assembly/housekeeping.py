"""Forgetting what nobody will ask for again, in batches that hold no lock for long."""

import logging
from collections.abc import Callable, Iterator
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
from packhorse_services.publisher.settings import LONGEST_KEPT_DAYS, Settings

logger = logging.getLogger(__name__)

_BATCH, _MOST_BATCHES = 1_000, 100
_DAY_S = 86_400.0
_WEEK_S = PACKAGE_RETENTION_MS / 1000
_CENTURY_S = 100 * 365 * _DAY_S
_KEEP_COMMANDS_S = _KEEP_RELEASES_S = 30 * _DAY_S
_AWAY_S = 30 * _DAY_S
"""An agent whose publishers are away for longer has been retired."""
_ABANDONED_S = LONGEST_KEPT_DAYS * _DAY_S

_Forget = Callable[[Connection], int]


class Housekeeping:
    """Removes what is old of one publisher agent, and what all agents keep for as long (R18).

    Any replica may do it at any time. Keys and producers of an agent that has no publisher any
    more go when they are older than any agent's settings can keep them.
    """

    def __init__(self, pool: Lender, journal: Journal, settings: Settings) -> None:
        self._pool, self._journal, self._settings = pool, journal, settings

    def tidy(self) -> None:
        """Do it once. Raises `JournalUnavailable` or `psycopg.Error`; the next round goes on."""
        # Some every time, which is no news.
        self._repeat(lambda c: sample_rows.forget(c, sample_rows.KEPT_S, _BATCH))
        for steps in (self._by_age, self._by_log):
            forgotten = {name: self._repeat(forget) for name, forget in steps()}
            if any(forgotten.values()):
                logger.info("forgot what is old", extra=forgotten)

    def _by_age(self) -> Iterator[tuple[str, _Forget]]:
        keys, used = self._settings.idempotency_hours * 3600, self._settings.producer_days * _DAY_S
        own = self._settings.agent
        yield "keys", lambda c: idempotency.forget(c, own, keys, _ABANDONED_S, _BATCH)
        yield "producers", lambda c: producers.forget(c, own, used, _ABANDONED_S, _BATCH)
        yield "commands", lambda c: commands.forget(c, _KEEP_COMMANDS_S, _BATCH)
        yield "releases", lambda c: release_rows.forget(c, _KEEP_RELEASES_S, _BATCH)

    def _by_log(self) -> Iterator[tuple[str, _Forget]]:
        agent, topic = self._settings.agent, self._settings.topics.package
        identity = self._journal.identity(topic)
        oldest = self._journal.bounds(topic).oldest
        silence_s = _silence_s(self._journal.retention_ms(topic))
        limits: Any = {"failed_s": self._settings.keep_failed_days * _DAY_S, "limit": _BATCH}
        of_others: Any = {**limits, "others_s": _WEEK_S}
        yield "distributions", lambda c: outbox_rows.forget_below(c, identity, oldest, _BATCH)
        yield "outcomes", lambda c: outcome_rows.forget(c, agent, identity, oldest, **limits)
        yield (
            "outcomes_of_other_logs",
            lambda c: outcome_rows.forget_of_other_logs(c, agent, identity, **of_others),
        )
        away_s = max(silence_s, _AWAY_S)
        yield (
            "subscribers",
            lambda c: subscriber_rows.remove_silent(c, agent, silence_s, away_s, _BATCH),
        )

    def _repeat(self, forget: _Forget) -> int:
        """Call `forget` until it removes less than a batch; return how many rows it has removed.

        Each time in a transaction of its own. What is left after a hundred times waits for the
        next round.
        """
        total = 0
        for _ in range(_MOST_BATCHES):
            with writing(self._pool.connection) as connection:
                removed = forget(connection)
            total += removed
            if removed < _BATCH:
                break
        return total


def _silence_s(retention_ms: int) -> float:
    """Return for how long the silent are known: a week, and longer where packages are kept longer.

    Never longer than the database can count back.
    """
    return min(max(_WEEK_S, how_long(retention_ms) / 1000), _CENTURY_S)
