"""The archive's run: both queries one after the other until nothing waits, or both for ever."""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse.errors import PackhorseError
from packhorse_services.pipeline.archive import bronze, silver
from packhorse_services.pipeline.archive.bronze import ArchivedJournal, Reached, unheeded
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.engine.stream_progress import QueryWatch
from packhorse_services.pipeline.errors import HistoryGap, Overtaken, TaskFailed
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import SILVER, BatchNumber, overtaken, prepare
from packhorse_services.pipeline.storage.location import Location

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
_BATCH_END_S = 300.0
_ATTEMPTS = 5
"""How often in a row a run begins again, no batch being finished between."""

_WRITES = {bronze.QUERY: (tables.BRONZE,), silver.QUERY: tuple(SILVER)}


class RunStopped(Exception):
    """Ends a query before its next commit, since the run is to stop, or the other one has."""


class _SilverOvertaken(Overtaken):
    """Another run has decoded what this one was about to; bronze tells which of them goes on."""


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
    origin: ArchivedJournal
    blobs_url: str
    choices: Choices = field(default_factory=Choices)
    watch: QueryWatch = field(default_factory=QueryWatch)
    reached: Reached = unheeded
    stop: threading.Event = field(default_factory=threading.Event)
    _turns: dict[str, BatchNumber] = field(default_factory=dict)
    """Where each query began: under which generation of its checkpoint."""
    _failures: Counter[str] = field(default_factory=Counter)
    """How often in a row each query has made the run begin again."""
    _ending: bool = False

    def run(self) -> None:
        """Archive what the journal holds now, or with `continuous` until it is stopped.

        Raises `HistoryGap`, `CheckpointCorrupt`, `SchemaChanged`, `TablesUnusable`,
        `TaskRefused` (`Overtaken` among it), `TaskFailed`, and the journal's own errors.
        """
        with translated("archive"), self.watch.of(self.spark):
            prepare(self.location)
            self._archive()
            if not self.choices.continuous and not self.stop.is_set():
                self._work({silver.QUERY: self._silver(first=True)})

    def _archive(self) -> None:
        """Run the first query, in a continuous run both, and again where they may go on.

        Where records leave the journal while they are read, planning anew tells which they are:
        it raises `HistoryGap` for those that matter, and passes announcements over. Of two runs
        the first query alone tells which goes on: if each lost one query, both would end.
        """
        first = True
        while not self.stop.is_set():
            writers = {bronze.QUERY: self._bronze(first=first)}
            try:
                if self.choices.continuous:
                    writers[silver.QUERY] = self._silver(first=first)
                self._work(writers)
                return
            except (HistoryGap, _SilverOvertaken) as error:
                self._failed(error)
            except TaskFailed as error:
                if bronze.STARVED not in str(error):
                    raise
                self._failed(error)  # a busy machine was the reason
            first = False

    def _failed(self, error: HistoryGap | _SilverOvertaken | TaskFailed) -> None:
        """Let the run begin again; raise `error`, or that bronze is another run's, where it can't.

        Who was overtaken lets the other run end a batch first.
        """
        if self.stop.is_set():
            return
        query = silver.QUERY if isinstance(error, Overtaken) else bronze.QUERY
        self._failures[query] += 1
        if self._failures[query] == _ATTEMPTS:
            raise error
        if other := self._overtaken(bronze.QUERY):
            raise other from error
        logger.warning(
            "archive restarting from the last committed offset", extra={"why": str(error)}
        )
        if isinstance(error, Overtaken):
            self.stop.wait(self.choices.interval_s * self._failures[query])

    def _bronze(self, *, first: bool) -> DataStreamWriter:
        found = bronze.plan(
            self.spark,
            self.location,
            self.origin,
            accept_gap=self.choices.accept_gap,
            new_checkpoint=self.choices.new_checkpoint and first,
        )
        self._turns[bronze.QUERY] = found.taken
        self.watch.expect(bronze.QUERY, found.waiting)
        return bronze.query(
            *(self.spark, self.location, self.origin, found),
            reached=self._reached,
            counted=partial(self.watch.counts, bronze.QUERY),
        )

    def _silver(self, *, first: bool) -> DataStreamWriter:
        topics = self.origin.topics
        with self._telling(silver.QUERY):
            found = silver.plan(
                self.spark,
                self.location,
                topics,
                new_checkpoint=self.choices.new_checkpoint and first,
            )
        self._turns[silver.QUERY] = found.taken
        return silver.query(
            self.spark, self.location, topics, self.blobs_url, found, reached=self._reached
        )

    def _work(self, writers: Mapping[str, DataStreamWriter]) -> None:
        """Run queries until all are done, one has failed, or the run is to stop.

        When one has failed, the other begins no commit any more: bronze may be another run's.
        """
        queries: dict[str, StreamingQuery] = {}
        self._ending = False
        try:
            for name, writer in writers.items():
                with self._telling(name):
                    queries[name] = self._triggered(writer).start()
            while all(query.exception() is None for query in queries.values()):
                if self.stop.is_set() or not any(query.isActive for query in queries.values()):
                    break
                self.stop.wait(_LOOK_S)
        finally:
            self._ending = True
            for query in queries.values():
                _end(query)
        for name, query in queries.items():
            error = query.exception()
            if error is not None and RunStopped.__name__ not in str(error):
                with self._telling(name):
                    raise error

    @contextmanager
    def _telling(self, query: str) -> Iterator[None]:
        """Tell of a query's errors whether another run is the reason, and of which query it is.

        Who begins a checkpoint anew removes the last one; Spark then only tells of missing files.
        """
        try:
            with translated("archive"):
                yield
        except PackhorseError as error:
            other = error if isinstance(error, Overtaken) else self._overtaken(query)
            if other is None:
                raise
            raise (_SilverOvertaken if query == silver.QUERY else Overtaken)(str(other)) from error

    def _overtaken(self, query: str) -> Overtaken | None:
        turn = self._turns.get(query)
        return None if turn is None else overtaken(self.location, _WRITES[query], turn)

    def _reached(self, point: str) -> None:
        """Pass a commit point, unless the queries are to end."""
        if (self.stop.is_set() or self._ending) and point.startswith("before"):
            raise RunStopped(point)
        self.reached(point)
        self._failures.pop(point.removeprefix("after "), None)

    def _triggered(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.choices.continuous:
            return writer.trigger(processingTime=f"{self.choices.interval_s} seconds")
        return writer.trigger(availableNow=True)


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
