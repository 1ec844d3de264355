"""One cleanup run: bounds, candidates, a reading of the log, marks, and only then removals (R21).

Whatever crashes, no blob that the log names is gone, and the next run finishes: a blob goes
before its row, so a row without a blob is found and removed again, and a blob without a row is
an orphan.
"""

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

import psycopg
from psycopg import Connection

from packhorse.blobs.api import BlobStore
from packhorse.bookkeeping import outbox_view, stored_packages
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import (
    Bounds,
    Journal,
    JournalUnavailable,
    LogEnd,
)
from packhorse.messaging.reading import read_to
from packhorse.runtime import audit
from packhorse.runtime.audit import AuditOutcome
from packhorse.runtime.metrics import (
    CLEANUP_REMOVED,
    CLEANUP_REMOVED_BYTES,
    CLEANUP_RUNS,
)
from packhorse.wire.package_codec import PACKAGE_ID_HEADER
from packhorse_services.cleanup import ledger, orphans
from packhorse_services.cleanup.cleanup_lock import CleanupLock, CleanupLockLost
from packhorse_services.cleanup.orphans import Orphans
from packhorse_services.cleanup.report import Candidate, CleanupRun, RemovalReason

_PATIENCE_S = 30.0
_BEAT_S = 20.0
logger = logging.getLogger(__name__)

_MOST = 10_000
"""Candidates of one run; when there are more, another run follows at once."""

_BATCH = 100
"""Packages between two looks whether the lock is still this run's."""


class JournalChanged(Transient):
    """The topic was created anew while the run looked at it; nothing was removed."""


class ForeignLog(Transient):
    """Publishers append to another log than the cleanup reads; nothing was removed."""


class Sweep:
    """Removes what the log has forgotten and what nobody ever committed."""

    def __init__(
        self,
        journal: Journal,
        topic: str,
        blobs: BlobStore,
        grace: timedelta,
        *,
        most: int = _MOST,
        batch: int = _BATCH,
    ) -> None:
        self._journal, self._topic, self._blobs = journal, topic, blobs
        self._most, self._batch = most, batch
        self._orphans = Orphans(blobs, grace)

    def perform(self, lock: CleanupLock, run: CleanupRun) -> bool:
        """Do a run that has begun, and close it; false when there is more than one run does.

        An error is noted and passed on.

        An error before the marks are written has removed nothing.
        """
        try:
            complete = self._perform(lock, run)
        except CleanupLockLost:
            CLEANUP_RUNS.labels("lost").inc()
            raise
        except Exception as error:
            CLEANUP_RUNS.labels("failed").inc()
            _audit(run, AuditOutcome.FAILED, reason=type(error).__name__)
            with suppress(psycopg.Error):  # without the database the next run closes this one
                _close(lock, run, error)
            raise
        CLEANUP_RUNS.labels("succeeded").inc()
        return complete

    def _perform(self, lock: CleanupLock, run: CleanupRun) -> bool:
        bounds = self._decide_bounds(lock, run)
        candidates, kept, complete = self._candidates(lock, run, bounds)
        for batch in _batches(candidates, self._batch):
            with lock.transaction() as connection:
                ledger.mark(connection, run.id, batch)
        if not run.dry_run:
            for batch in _batches(candidates, self._batch):
                self._remove(lock, run, batch)
        with lock.transaction() as connection:
            kept |= stored_packages.count_kept(connection)
            ledger.end(connection, run.id, kept)
        extra = {"run": run.id, "dry_run": run.dry_run, "removed": len(candidates), **kept}
        logger.info("cleaned up", extra=extra)
        _audit(run, AuditOutcome.DONE, removed=len(candidates))
        return complete or run.dry_run

    def require_published(self, connection: Connection, log: str) -> None:
        """Raise `ForeignLog` unless `log` is the one that the author's publishers append to.

        Else one topic name or URL that differs would make every stored package a forgotten one. A
        topic that was made anew is the publishers' log once they have appended to it.
        """
        published = outbox_view.published_log(connection)
        if published not in ("", log):
            raise ForeignLog(
                f"publishers of this database append to the log {published}, and {self._topic} is "
                f"{log}: all programs need the same PACKHORSE_JOURNAL_URL and names of topics; "
                "if the topic was made anew, publish something"
            )

    def _decide_bounds(self, lock: CleanupLock, run: CleanupRun) -> Bounds:
        """Read the log's bounds, and stamp packages that have no offset with the newest one.

        A package that is not on its way is in the log already, so below the end that is read
        *afterwards*; its offset can't be higher than what it is stamped with.
        """
        journal_id = self._journal.identity(self._topic)
        with lock.transaction() as connection:
            self.require_published(connection, journal_id)
            if not run.dry_run and ledger.note_journal(connection, journal_id):
                logger.warning("the journal is another one", extra={"journal": journal_id})
                stored_packages.forget_offsets(connection)
            keys = stored_packages.unplaced(connection, self._most)
        bounds = self._journal.bounds(self._topic)
        if self._journal.identity(self._topic) != journal_id:
            raise JournalChanged("the topic was created anew during the run; it is tried again")
        with lock.transaction() as connection:
            ledger.note_bounds(connection, run.id, journal_id, bounds)
            if not run.dry_run:
                stored_packages.stamp(connection, keys, bounds.next - 1)
        return bounds

    def _candidates(
        self, lock: CleanupLock, run: CleanupRun, bounds: Bounds
    ) -> tuple[list[Candidate], dict[str, int], bool]:
        """Return what goes, how many orphans stay and why, and whether that was all."""
        with lock.transaction() as connection:
            below = stored_packages.below(connection, bounds.oldest, self._most)
        forgotten = [
            Candidate(key, RemovalReason.FORGOTTEN, length, offset) for key, length, offset in below
        ]
        alone, young = self._orphans.see(lock, None if run.dry_run else run.id, self._most)
        found = forgotten + alone
        named = last_offsets(
            self._journal,
            self._topic,
            bounds,
            {candidate.package_id for candidate in found},
            lock.check,
        )
        if named and not run.dry_run:
            places = {c.key: named[c.package_id] for c in found if c.package_id in named}
            with lock.transaction() as connection:
                stored_packages.place(connection, places)
        going = [candidate for candidate in found if candidate.package_id not in named]
        # Orphans that the log names stay orphans: where all are, another run would find the same.
        complete = len(forgotten) < self._most and (len(alone) < self._most or not going)
        return going, {"young_orphans": young, "named_by_the_log": len(named)}, complete

    def _remove(self, lock: CleanupLock, run: CleanupRun, batch: Sequence[Candidate]) -> None:
        with lock.transaction() as connection:
            batch = _still_unknown(connection, batch)
        for candidate in batch:
            self._blobs.delete(candidate.key)
        keys = [candidate.key for candidate in batch]
        with lock.transaction() as connection:
            stored_packages.forget(connection, keys)
            orphans.forget(connection, keys)
            ledger.note_removed(connection, run.id, keys)
        for candidate in batch:
            CLEANUP_REMOVED.labels(candidate.reason).inc()
            CLEANUP_REMOVED_BYTES.labels(candidate.reason).inc(candidate.length)


def _close(lock: CleanupLock, run: CleanupRun, error: Exception) -> None:
    reported = str(error) if isinstance(error, PackhorseError) else type(error).__name__
    with lock.transaction() as connection:
        ledger.fail(connection, run.id, reported)


def _still_unknown(connection: Connection, batch: Sequence[Candidate]) -> list[Candidate]:
    """Leave out orphans that have become stored packages since they were seen."""
    known = stored_packages.known(connection, [candidate.key for candidate in batch])
    return [
        candidate
        for candidate in batch
        if candidate.reason is RemovalReason.FORGOTTEN or candidate.key not in known
    ]


def _batches(candidates: Sequence[Candidate], size: int) -> Iterator[list[Candidate]]:
    iterator = iter(candidates)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _audit(run: CleanupRun, outcome: AuditOutcome, **reported: str | int) -> None:
    if not run.dry_run:
        about = {"operation": "cleanupRun", "object": f"/cleanup/runs/{run.id}", **reported}
        audit.record(run.origin, outcome, about)


# Offsets can be too low: a publisher that was paused may have appended a package twice. So nothing
# is removed before a whole reading of the log has named it nowhere (R21).
def last_offsets(
    journal: Journal,
    topic: str,
    bounds: Bounds,
    package_ids: Collection[str],
    beat: Callable[[], None],
) -> dict[str, int]:
    """Return the highest offset of each of the packages that the log names.

    `beat` is called every few seconds of a long reading. Raises `JournalUnavailable` unless the
    end was reached: then nothing is known.
    """
    if not package_ids or bounds.oldest >= bounds.next:
        return {}
    wanted = {package_id.encode(): package_id for package_id in package_ids}
    found: dict[str, int] = {}
    with journal.reader(topic, LogEnd.OLDEST, partition=0, values=False) as reader:
        meanwhile = _now_and_then(beat)
        for records in read_to(reader, bounds.next, patience_s=_PATIENCE_S, meanwhile=meanwhile):
            for record in records:
                if record.damage:  # it may be the one that refers to what is to be removed (R21)
                    raise JournalUnavailable(record.damage)
                name = wanted.get(record.headers.get(PACKAGE_ID_HEADER, b""))
                if name is not None:
                    found[name] = record.offset
    return found


def _now_and_then(beat: Callable[[], None]) -> Callable[[], None]:
    """Return what calls `beat` when the last call is long enough ago."""
    beaten = time.monotonic()

    def meanwhile() -> None:
        nonlocal beaten
        if time.monotonic() > beaten + _BEAT_S:
            beat()
            beaten = time.monotonic()

    return meanwhile
