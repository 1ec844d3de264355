"""The archive's run: both queries one after the other until nothing waits, or both for ever."""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse_services.pipeline.archive import bronze, silver
from packhorse_services.pipeline.archive.bronze import Origin, Reached, unheeded
from packhorse_services.pipeline.archive.delta import prepare
from packhorse_services.pipeline.errors import HistoryGap
from packhorse_services.pipeline.failures import translated
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.progress import Watch

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
_BATCH_END_S = 300.0
_ATTEMPTS = 5
"""How often a run begins again because records left the journal while it was read."""


class RunStopped(Exception):
    """Ends a query before its next commit, since the run is to stop."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator has chosen for one run."""

    accept_gap: bool = False
    new_checkpoint: bool = False
    continuous: bool = False
    interval_s: int = 10


@dataclass(slots=True)
class Archive:
    """One run of the archive. Once `stop` is set, no further commit begins; nothing is lost."""

    spark: SparkSession
    location: Location
    origin: Origin
    blobs_url: str
    choices: Choices = field(default_factory=Choices)
    watch: Watch = field(default_factory=Watch)
    reached: Reached = unheeded
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Archive what the journal holds now, or with `continuous` until it is stopped.

        Raises `HistoryGap`, `CheckpointCorrupt`, `SchemaChanged`, `TablesUnusable`,
        `TaskRefused`, `TaskFailed`, and the journal's own errors.
        """
        with translated("archive"), self.watch.of(self.spark):
            prepare(self.location)
            self._archive()
            if not self.choices.continuous and not self.stop.is_set():
                self._work([self._silver(first=True)])

    def _archive(self) -> None:
        """Run the first query, in a continuous run both.

        Where records leave the journal while they are read, planning anew tells which they are:
        it raises `HistoryGap` for those that matter, and passes announcements over.
        """
        for attempt in range(_ATTEMPTS):
            first, last = attempt == 0, attempt == _ATTEMPTS - 1
            writers = [self._bronze(first=first)]
            if self.choices.continuous:
                writers.append(self._silver(first=first))
            try:
                with translated("archive"):
                    self._work(writers)
            except HistoryGap:
                if last:
                    raise
                logger.warning("records left the journal while they were read; looking which")
            else:
                return

    def _bronze(self, *, first: bool) -> DataStreamWriter:
        found = bronze.plan(
            self.spark,
            self.location,
            self.origin,
            accept_gap=self.choices.accept_gap,
            new_checkpoint=self.choices.new_checkpoint and first,
        )
        self.watch.expect(bronze.QUERY, found.waiting)
        return bronze.query(self.spark, self.location, self.origin, found, self._reached)

    def _silver(self, *, first: bool) -> DataStreamWriter:
        topics = self.origin.topics
        found = silver.plan(
            self.spark,
            self.location,
            topics,
            new_checkpoint=self.choices.new_checkpoint and first,
        )
        return silver.query(
            self.spark, self.location, topics, self.blobs_url, found, reached=self._reached
        )

    def _work(self, writers: Sequence[DataStreamWriter]) -> None:
        """Run queries until all are done, one has failed, or the run is to stop."""
        queries: list[StreamingQuery] = []
        try:
            for writer in writers:
                queries.append(self._triggered(writer).start())
            while all(query.exception() is None for query in queries):
                if self.stop.is_set() or not any(query.isActive for query in queries):
                    break
                self.stop.wait(_LOOK_S)
        finally:
            for query in queries:
                _end(query)
        for query in queries:
            error = query.exception()
            if error is not None and RunStopped.__name__ not in str(error):
                raise error

    def _reached(self, point: str) -> None:
        """Pass a commit point, unless the run is to stop."""
        if self.stop.is_set() and point.startswith("before"):
            raise RunStopped(point)
        self.reached(point)

    def _triggered(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.choices.continuous:
            return writer.trigger(processingTime=f"{self.choices.interval_s} seconds")
        return writer.trigger(availableNow=True)


def _end(query: StreamingQuery) -> None:
    """Let the batch under way end, then the query."""
    waited = threading.Event()
    patience = _BATCH_END_S
    while patience > 0 and query.isActive and query.status["isTriggerActive"]:
        waited.wait(_LOOK_S)
        patience -= _LOOK_S
    with suppress(PySparkException):  # told by whoever asks for its exception
        query.stop()
