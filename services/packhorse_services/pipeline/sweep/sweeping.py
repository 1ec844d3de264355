"""The sweep: what a mark has found and a second look confirms leaves the blob store (R22)."""

import itertools
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from packhorse.blobs.api import BlobStore, StoredBlob
from packhorse.blobs.open import open_blobs
from packhorse_services.pipeline.errors import NotThere, NotYet, TaskRefused
from packhorse_services.pipeline.sweep.marking import HOUR_MS, MarkRound
from packhorse_services.pipeline.sweep.report import (
    MarkReport,
    MarkState,
    MarkSummary,
    SweepRemoval,
    Totals,
)
from packhorse_services.pipeline.sweep.stores import Stores

SWEEP = "sweep"
_BATCH = 500


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """When a mark may be swept, in milliseconds of the author's database after its end."""

    earliest_ms: int = HOUR_MS // 4
    """A publisher may keep an export that long in memory before it is in the outbox."""
    latest_ms: int = 24 * HOUR_MS


PATIENCE = SweepTimes()


@dataclass(frozen=True)
class Removing:
    """Removes blobs that are as the mark has seen them, and old enough still."""

    blobs_url: str
    safety_age_ms: int

    def __call__(self, doomed: Iterator[StoredBlob]) -> Iterator[SweepRemoval]:
        """Yield what became of each."""
        with closing(open_blobs(self.blobs_url)) as blobs:
            while batch := list(itertools.islice(doomed, _BATCH)):
                before_ms = blobs.now_ms() - self.safety_age_ms
                yield from (self._removed(blobs, blob, before_ms) for blob in batch)

    def _removed(self, blobs: BlobStore, blob: StoredBlob, before_ms: int) -> SweepRemoval:
        old = blob.modified_ms <= before_ms
        gone = old and blobs.delete_unless_renewed(blob.key, blob.modified_ms)
        return SweepRemoval(blob.key, blob.length, gone)


def sweep(
    report: MarkReport,
    stores: Stores,
    *,
    gone: Collection[str] = (),
    patience: SweepTimes = PATIENCE,
    dry_run: bool = False,
    parts: int = 8,
) -> tuple[MarkSummary, Totals]:
    """Remove what the mark found and nobody refers to now; returns the mark and what went.

    Killed and run again it goes on. With `dry_run` it returns what would go. Raises `TaskRefused`
    for a mark that may not be swept, `NotYet` where it may be later, and whatever a source raises
    that can't be read; then nothing was removed.
    """
    summary = sweepable(report.state(), stores, patience)
    stores.check_subscribers(gone)
    stores.check_in_flight(summary.ended_ms)
    with report.round(SWEEP):
        MarkRound(SWEEP, report, stores, summary.journal_id, parts).read(summary.next_offset)
        doomed = report.choose_doomed(SWEEP)
    if dry_run:
        return summary, doomed
    removing = Removing(stores.blobs_url, summary.safety_age_ms)
    swept = report.remove_doomed(removing, lambda: check_age(summary, stores, patience))
    summary = replace(summary, state=MarkState.SWEPT, swept=swept)
    report.note(summary)
    return summary, swept


def sweepable(summary: MarkSummary | None, stores: Stores, patience: SweepTimes) -> MarkSummary:
    """Return a mark that may be swept now. Raises `TaskRefused`, `NotYet` where it may be later."""
    if summary is None:
        raise NotThere("there is no such mark; packhorse-pipeline mark prints the id of one")
    if summary.state is MarkState.SWEPT:
        raise TaskRefused(f"{summary.id} has been swept already; make a new mark")
    if summary.state is not MarkState.COMPLETE:
        reason = f" ({summary.error})" if summary.error else ""
        raise TaskRefused(f"{summary.id} is not complete{reason}; make a new mark")
    if stores.journal.identity(stores.topic) != summary.journal_id:
        raise TaskRefused(f"the journal is another one than {summary.id} has read; make a new mark")
    missing = sorted(set(summary.subscribers) ^ set(stores.subscriber_urls))
    if missing:
        raise TaskRefused(f"{summary.id} was made with or without {missing[0]}; make a new mark")
    check_age(summary, stores, patience)
    return summary


def check_age(summary: MarkSummary, stores: Stores, patience: SweepTimes) -> None:
    """Raise `NotYet` when it is too early to sweep the mark, `TaskRefused` when it is too late."""
    age_ms = stores.now_ms() - summary.ended_ms
    if age_ms < patience.earliest_ms:
        raise NotYet(
            f"{summary.id} ended {age_ms // 1000} s ago; packages that were under way then may not "
            f"be in the log yet: sweep it after {patience.earliest_ms // 1000} s"
        )
    if age_ms > patience.latest_ms:
        raise TaskRefused(
            f"{summary.id} is {age_ms // HOUR_MS} h old, too old to be swept; make a new mark"
        )
