"""The mark: which blobs nobody refers to. It writes a report and deletes nothing (R22).

Sources are read in the order in which references travel: the author's content, what is on its way
to the log, the log, stored bodies, snapshots, subscribers. A reference that moves on while it is
looked for is so found where it came from or where it went (ADR 0021).
"""

import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from packhorse.messaging.api import Bounds
from packhorse_services.pipeline.engine.databases import AUTHOR
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused
from packhorse_services.pipeline.sweep.report import MarkReport, MarkState, MarkSummary
from packhorse_services.pipeline.sweep.scans import (
    PACKAGES,
    PARTS,
    BlobListing,
    LogScan,
    NodeScan,
    OutboxScan,
    StoredBodies,
    block_ranges,
    shard_groups,
    shared_snapshot,
)
from packhorse_services.pipeline.sweep.stores import Stores
from packhorse_services.pipeline.sweep.work import evenly

HOUR_MS = 3600 * 1000
MARK = "mark"
_OFFSETS = 2_000


def new_mark_id(now_ms: int) -> str:
    """Return an id that nobody has, and that sorts by time."""
    return f"mark-{now_ms}-{secrets.token_hex(4)}"


def mark(
    report: MarkReport,
    stores: Stores,
    mark_id: str,
    *,
    gone: Collection[str] = (),
    safety_age_ms: int = 24 * HOUR_MS,
    parts: int = 8,
) -> MarkSummary:
    """Find what nobody refers to and write it down; COMPLETE comes last.

    Raises, and leaves the mark FAILED, when any source can't be read: an error never means that
    nothing is referred to.
    """
    stores.check_subscribers(gone)
    summary = _begun(stores, mark_id, safety_age_ms)
    report.note(summary)
    try:
        with report.round(MARK):
            summary = _found(report, stores, summary, parts)
    except Exception as error:
        with suppress(Exception):  # the first error is the one to report
            report.note(summary.failed(str(error)))
        raise
    report.note(summary)
    return summary


def _begun(stores: Stores, mark_id: str, safety_age_ms: int) -> MarkSummary:
    return MarkSummary(
        mark_id,
        MarkState.RUNNING,
        started_ms=stores.now_ms(),
        safety_age_ms=safety_age_ms,
        journal_id=stores.journal.identity(stores.topic),
        subscribers=tuple(sorted(stores.subscriber_urls)),
    )


def _found(report: MarkReport, stores: Stores, summary: MarkSummary, parts: int) -> MarkSummary:
    began_ms = stores.blobs.now_ms()
    listed = report.list_blobs(BlobListing(stores.blobs_url), shard_groups(parts))
    bounds = MarkRound(MARK, report, stores, summary.journal_id, parts).read(None)
    unused = report.choose_candidates(MARK, began_ms - summary.safety_age_ms)
    unreadable, examples = report.unreadable(MARK)
    found = replace(
        summary,
        state=MarkState.COMPLETE,
        ended_ms=stores.now_ms(),
        oldest_offset=bounds.oldest,
        next_offset=bounds.next,
        listed=listed,
        unused=unused,
        unreadable=unreadable,
        unreadable_keys=examples,
    )
    report.remember(MARK, began_ms - HOUR_MS)
    return found


@dataclass(frozen=True)
class MarkRound:
    """One look at everything that may refer to blobs, in the report's round of that name."""

    name: str
    report: MarkReport
    stores: Stores
    journal_id: str
    parts: int

    def read(self, log_from: int | None) -> Bounds:
        """Read all sources in their order, the log from an offset; returns the log's bounds.

        Raises `TaskRefused` when the topic is another one by now, or lacks `log_from`.
        """
        self._repository(AUTHOR, self.stores.author_url)
        outbox = OutboxScan(self.stores.author_url, self.stores.blobs_url)
        self.report.read(self.name, "outbox", outbox, [0])
        bounds = self._log(log_from)
        shards = shard_groups(self.parts)
        for kind in (PACKAGES, PARTS):
            scan = StoredBodies(self.stores.blobs_url, kind)
            self.report.read_blobs(self.name, kind, scan, shards)
        self._check_bodies()
        for name, url in sorted(self.stores.subscriber_urls.items()):
            self._repository(f"subscriber {name}", url)
        return bounds

    def _log(self, log_from: int | None) -> Bounds:
        stores = self.stores
        bounds = stores.journal.bounds(stores.topic)
        start = bounds.oldest if log_from is None else log_from
        if not bounds.oldest <= start <= bounds.next:
            raise TaskRefused(
                f"the log no longer holds offset {start}, where the mark ended; make a new mark"
            )
        scan = LogScan(stores.journal_url, stores.blobs_url, stores.topic)
        pieces = evenly(start, bounds.next, self.parts, _OFFSETS)
        self.report.read(self.name, "log", scan, pieces)
        if stores.journal.identity(stores.topic) != self.journal_id:
            raise TaskRefused("the package topic was created anew; make a new mark")
        return bounds

    def _repository(self, name: str, url: str) -> None:
        with shared_snapshot(url, name) as (snapshot, blocks):
            scan = NodeScan(url, name, snapshot)
            self.report.read(self.name, name, scan, block_ranges(blocks, self.parts))

    def _check_bodies(self) -> None:
        unread = self.report.body_not_read(self.name)
        if unread is not None:
            raise TaskFailed(
                f"the log has a package whose body {unread} is not in the blob store, or damaged "
                "there, so nobody knows what it needs; put it back, or wait until the log has "
                "forgotten it"
            )
