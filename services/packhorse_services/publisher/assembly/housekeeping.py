"""Forgetting what nobody will ask for again, in batches that hold no lock for long."""

import logging
from collections.abc import Callable

from psycopg import Connection

from packhorse.db.batches import in_batches
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import Lender
from packhorse.messaging.api import Journal
from packhorse_services.publisher.commands import command_rows as commands
from packhorse_services.publisher.outbox import idempotency, outbox_rows, producers, release_rows
from packhorse_services.publisher.queues.history import sample_rows

logger = logging.getLogger(__name__)

_BATCH = 1_000
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
        keys = self._repeat(lambda c: idempotency.forget(c, self._keep_keys_s, _BATCH))
        unused = self._repeat(lambda c: producers.forget(c, self._keep_producers_s, _BATCH))
        self._repeat(lambda c: commands.forget(c, _KEEP_COMMANDS_S, _BATCH))
        self._repeat(lambda c: release_rows.forget(c, _KEEP_RELEASES_S, _BATCH))
        self._repeat(lambda c: sample_rows.forget(c, sample_rows.KEPT_S, _BATCH))
        oldest = self._journal.bounds(self._topic).oldest
        rows = self._repeat(lambda c: outbox_rows.forget_below(c, oldest, _BATCH))
        if keys or rows or unused:
            forgotten = {"keys": keys, "distributions": rows, "producers": unused}
            logger.info("forgot old requests", extra=forgotten)

    def _repeat(self, forget: Callable[[Connection], int]) -> int:
        return in_batches(self._pool, BOOKKEEPER, forget, _BATCH)
