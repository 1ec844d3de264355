"""Whether the log holds what a subscriber says that it has processed last (R24, R31).

A log that comes back from a backup gives its offsets again, under the same identity. So a
subscriber announces the package at its offset, and it is done with nothing before the log was
found to hold that package there.
"""

import threading
from collections.abc import Iterable

from packhorse.clock import Clock
from packhorse.messaging.api import Journal
from packhorse.wire.messages import SubscriberState
from packhorse.wire.package_codec import PACKAGE_ID_HEADER
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache

MAX_ID = 200
_TAIL_S = 1.0
"""For so long the journal is not asked for what this publisher's own reader is about to read."""
_AGAIN_S = 2.0
"""How often it is asked for a record that is there and can't be read."""

_Claim = tuple[str, int, str]
"""Journal id, offset, package id."""


class PositionCheck:
    """Looked up by one thread, asked by any."""

    def __init__(self, journal: Journal, topic: str, cache: QueueCache, clock: Clock) -> None:
        self._journal, self._topic, self._cache, self._clock = journal, topic, cache, clock
        self._lock = threading.Lock()
        self._verdicts: dict[_Claim, bool] = {}
        self._since: dict[_Claim, float] = {}
        self._requested: dict[_Claim, float] = {}
        self._doubted: frozenset[_Claim] = frozenset()
        self._generation = 0
        self._from_cache = True

    def verdict(self, subscription: SubscriberState) -> bool | None:
        """Return whether the log holds it; None before that is known.

        A subscription that names no package is believed: nobody says what was there.
        """
        claim = _claim(subscription)
        found = self._verdicts.get(claim)
        if found is None and claim in self._doubted:
            return False
        return True if not subscription.package_id else found

    def check(self, subscriptions: Iterable[SubscriberState]) -> bool:
        """Look up what is not known yet, and forget all others; false: look again at once.

        Raises `JournalUnavailable`.
        """
        claims = {_claim(subscription) for subscription in subscriptions if subscription.package_id}
        known, generation = self._verdicts, self._generation
        found = {claim: known[claim] for claim in claims if claim in known}
        now = self._clock.monotonic()
        self._since = {claim: self._since.get(claim, now) for claim in claims - found.keys()}
        self._requested = {
            claim: self._requested[claim] for claim in self._since if claim in self._requested
        }
        for claim in self._since:
            verdict = self._look_up(claim, now)
            if verdict is not None:
                found[claim] = verdict
        with self._lock:
            if generation != self._generation:
                return False
            self._verdicts = found
            self._doubted = (self._doubted & claims) - found.keys()
        return all(claim in self._requested for claim in claims - found.keys())

    def distrust(self) -> None:
        """Look everything up anew: the log is another one, or was cut at its end.

        What was contradicted stays so until then. Until `trust` also what is in memory is of the
        log as it was.
        """
        with self._lock:
            self._generation += 1
            contradicted = {claim for claim, holds in self._verdicts.items() if not holds}
            self._doubted |= contradicted
            self._requested = {}
            self._verdicts, self._from_cache = {}, False

    def trust(self) -> None:
        """Say that what is in memory is of the present log."""
        self._from_cache = True

    def _look_up(self, claim: _Claim, now: float) -> bool | None:
        _, offset, package_id = claim
        if self._from_cache:
            known = self._cache.package_at(offset)
            if known is not None and known[:MAX_ID] == package_id:
                return True
            # A forged record may have two ids; a subscriber goes by its header.
            if offset >= self._cache.next and now < self._since[claim] + _TAIL_S:
                return None
        if now < self._requested.get(claim, now - _AGAIN_S) + _AGAIN_S:
            return None
        self._requested[claim] = now
        return self._in_journal(offset, package_id)

    def _in_journal(self, offset: int, package_id: str) -> bool | None:
        record = self._journal.read_at(self._topic, offset)
        if record is not None:
            raw = record.headers.get(PACKAGE_ID_HEADER, b"")[:MAX_ID]
            return raw.decode("utf-8", "replace").replace("\0", "") == package_id
        bounds = self._journal.bounds(self._topic)
        if bounds.next <= offset:
            return False
        # Below the oldest it is of no package that anybody asks for; inside, it can't be read.
        return True if offset < bounds.oldest else None


def _claim(subscription: SubscriberState) -> _Claim:
    return subscription.journal_id, subscription.offset, subscription.package_id
