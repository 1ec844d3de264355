"""The archive's run: one query until nothing waits, or for ever."""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse_services.pipeline.archive import checkpoint, start
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.checkpoint import Checkpoint
from packhorse_services.pipeline.archive.journal_source import opened
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.progress import ArchiveProgress
from packhorse_services.pipeline.archive.query import (
    ArchivedJournal,
    QueryPlan,
    Reached,
    query,
    unheeded,
)
from packhorse_services.pipeline.archive.silver import Decoder, decode_what_is_missing
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.errors import HistoryGap, Overtaken, TaskFailed
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import is_decoded, last_version, prepare
from packhorse_services.pipeline.storage.location import Location

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
_BATCH_END_S = 300.0
_ATTEMPTS = 5
"""How often in a row a run begins again, no batch being finished between."""

STARVED = "Python worker failed to connect back"
"""What Spark says when a process of its own took more than 10 s to begin; it waits no longer."""


class RunStopped(Exception):
    """Ends the query before its next batch is committed, since the run is to stop."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator has chosen for one run."""

    accept_gap: bool = False
    new_checkpoint: bool = False
    continuous: bool = False
    interval_s: int = 10
    open_files: int = 64
    """Of a continuous run: a day with more files in a table has its smallest ones merged."""


@dataclass(slots=True)
class Archive:
    """One run of the archive. Once `stop` is set, no batch is begun to be committed."""

    spark: SparkSession
    location: Location
    origin: ArchivedJournal
    blobs_url: str
    choices: Choices = field(default_factory=Choices)
    progress: ArchiveProgress = field(default_factory=ArchiveProgress)
    reached: Reached = unheeded
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, keep: Callable[[], None]) -> None:
        """Archive what the journal holds now, or with `continuous` until it is stopped.

        `keep` is what `only_run` gives. Raises `HistoryGap`, `CheckpointCorrupt`, `SchemaChanged`,
        `TablesUnusable`, `TaskRefused` (`Overtaken` among it), `TaskFailed`, and what the
        journal and `keep` raise.
        """
        with translated("archive"):
            prepare(self.location)
            self._archive(keep)

    def _archive(self, keep: Callable[[], None]) -> None:
        """Run the query, and again where it may go on.

        Where records leave the journal while they are read, planning anew tells which they are:
        it raises `HistoryGap` for those that matter, and passes announcements over.
        """
        failures, first = 0, True
        while not self.stop.is_set():
            found = self._plan(first=first)
            done = self.progress.done
            try:
                with translated("archive"):
                    self._work(self._query(found), keep)
                return
            except (HistoryGap, TaskFailed) as error:
                failures = 0 if self.progress.done != done else failures + 1
                busy = isinstance(error, HistoryGap) or STARVED in str(error)
                if not busy or failures == _ATTEMPTS:
                    raise
                told = {"why": str(error)}
                logger.warning("archive restarting from the last committed offset", extra=told)
            first = False

    def _plan(self, *, first: bool) -> QueryPlan:
        """Hold checkpoint, tables and journal together, and begin a new checkpoint where needed."""
        location, origin = self.location, self.origin
        anew = first and self.choices.new_checkpoint
        there = None if anew else checkpoint.newest(location)
        reached = None if there is None else reached_by(there)
        # Before its records are looked at: who commits between the two refuses this run's batch.
        begun = last_version(location, tables.BRONZE) or 0
        held = start.held_by_bronze(location)
        with opened(origin.url) as journal:
            identities = start.identities_of(journal, origin.names, held)
            extent = at.extent_of(journal, origin.names)
            expected = at.furthest(held.places, reached or {})
            start.require_not_beyond(extent, expected)
            start.require_same_records(location, journal, held.newest, extent)
        missing = start.sort_holes(
            at.holes(extent, expected),
            expected,
            origin.topics.discovery,
            accept=first and self.choices.accept_gap,  # a later gap is another one
        )
        start.record(location, missing, identities)
        if there is None or reached is None or at.holes(extent, reached):
            there = self._begin_anew(begun)
        starting = at.starts(extent, expected)
        waiting = at.distance(starting, at.ends(extent))
        most = self.choices.open_files if self.choices.continuous else None
        return QueryPlan(there, starting, identities, waiting, most)

    def _begin_anew(self, begun: int) -> Checkpoint:
        """Let go of the checkpoint, once silver has all that bronze has; `begun` is its version."""
        if not is_decoded(self.location):
            decode_what_is_missing(self.spark, self.location, self._decoder, begun)
        checkpoint.remove_all(self.location)
        return Checkpoint(self.location, begun)

    @property
    def _decoder(self) -> Decoder:
        bodies_url = self.location.blobs_url(tables.BODIES)
        return Decoder(self.origin.topics, self.blobs_url, bodies_url)

    def _query(self, found: QueryPlan) -> DataStreamWriter:
        self.progress.expect(found.waiting)
        writer = query(self.spark, self.origin, found, self._decoder, self._reached, self.progress)
        if self.choices.continuous:
            return writer.trigger(processingTime=f"{self.choices.interval_s} seconds")
        return writer.trigger(availableNow=True)

    def _work(self, writer: DataStreamWriter, keep: Callable[[], None]) -> None:
        """Run the query until it is done, has failed, or the run is to stop."""
        running = writer.start()
        try:
            while running.isActive and not self.stop.is_set():
                keep()
                self.stop.wait(_LOOK_S)
        finally:
            _end(running)
        error = running.exception()
        if error is not None and RunStopped.__name__ not in str(error):
            raise error

    def _reached(self, point: str) -> None:
        """Pass a commit point, unless the run is to stop before a batch."""
        if self.stop.is_set() and point == f"before {tables.BRONZE}":
            raise RunStopped(point)
        self.reached(point)


def reached_by(there: Checkpoint) -> Places | None:
    """Return where the last batch of a checkpoint ends; None when it has finished none.

    Raises `CheckpointCorrupt`, also when the tables have another batch; `Overtaken` when another
    run goes on.
    """
    held = last_version(there.location, tables.BRONZE)
    finished = there.finished()
    if finished is None:
        return None
    end = there.end_of(finished)
    versions = {at.version_of(end)}
    if there.has_planned(finished + 1):  # it may have been committed in part
        versions.add(at.version_of(there.end_of(finished + 1)))
    if held in versions:
        return end
    if last_version(there.location, tables.BRONZE) != held:
        raise Overtaken("another run of the archive is at work; wait for it, or end it first")
    has = "more" if (held or 0) < min(versions) else "less"
    raise there.corrupt("commits", f"it has done {has} than the tables have")


def _end(query: StreamingQuery) -> None:
    """Let the batch under way end, then the query; one that only looks for records has none."""
    waited = threading.Event()
    patience = _BATCH_END_S
    while patience > 0 and query.isActive and _has_batch(query.status):
        waited.wait(_LOOK_S)
        patience -= _LOOK_S
    with suppress(PySparkException):  # told by whoever asks for its exception
        query.stop()


def _has_batch(status: Mapping[str, Any]) -> bool:
    return bool(status["isTriggerActive"] and status["isDataAvailable"])
