"""How far a task's streaming queries are: a bar for who watches, a log line and metrics for all."""

import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from packhorse.runtime.metrics import (
    PIPELINE_BATCH_SECONDS,
    PIPELINE_LAG_RECORDS,
    PIPELINE_LAST_BATCH,
    PIPELINE_RECORDS,
)

logger = logging.getLogger(__name__)

_TELLING_MS = 120_000


@dataclass(frozen=True, slots=True)
class Done:
    """What the batches of one query have dealt with."""

    records: int = 0
    batches: int = 0


class QueryWatch:
    """Reports the progress of the streaming queries of one run.

    On a terminal that is a bar for each query; everywhere a log line and metrics for each batch.
    """

    def __init__(self, *, bar: bool | None = None) -> None:
        wanted = sys.stderr.isatty() if bar is None else bar
        self._bar = _bar() if wanted else None
        self._tasks: dict[str, Any] = {}
        self._done: dict[str, Done] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def expect(self, query: str, records: int) -> None:
        """Say how many records the next run of `query` has before it."""
        logger.info("query begins", extra={"query": query, "waiting": records})
        if self._bar is not None:
            with self._lock:
                self._tasks[query] = self._bar.add_task(query, total=records)

    def counts(self, query: str, batch: int, records: int) -> None:
        """Say how many records a batch has whose rows Spark itself does not read."""
        self._counts[query, batch] = records

    def counted(self, query: str, batch: int) -> int:
        """Return, once, what `counts` reported about a batch; 0 where it reported nothing."""
        return self._counts.pop((query, batch), 0)

    def passed(self, query: str, records: int) -> None:
        """Count records that a batch has dealt with."""
        PIPELINE_RECORDS.labels(query).inc(records)
        with self._lock:
            before = self.done(query)
            self._done[query] = Done(before.records + records, before.batches + 1)
        if self._bar is not None:
            with self._lock:
                if query not in self._tasks:
                    self._tasks[query] = self._bar.add_task(query, total=None)
                self._bar.advance(self._tasks[query], records)

    def done(self, query: str) -> Done:
        """Return what `query` has done; all of it, once the block of `of` has ended."""
        return self._done.get(query, Done())

    @contextmanager
    def of(self, spark: SparkSession) -> Iterator[None]:
        """Watch the queries of `spark` while the block runs, their last batches included."""
        listener = cast(StreamingQueryListener, _Listener(self))
        spark.streams.addListener(listener)
        if self._bar is not None:
            self._bar.start()
        try:
            yield
        finally:
            _let_spark_report(spark)
            if self._bar is not None:
                self._bar.stop()
            spark.streams.removeListener(listener)


class _Listener(JStreamingQueryListener):
    """Spark reports it of each batch, on a thread of its own.

    What it reports is asked for as one text: field by field, as PySpark does, it is hundreds of
    calls of the JVM.
    """

    def __init__(self, watch: QueryWatch) -> None:
        self._watch = watch

    @cached_property
    def _jlistener(self) -> Any:
        """What PySpark hands to the JVM."""
        wrapper = "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper"
        return getattr(SparkContext._jvm, wrapper)(self)

    def onQueryStarted(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        """Wait: nothing is known yet."""

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        """Count a batch; one without records counts only for the lag."""
        done = json.loads(jevent.progress().json())
        query, number = done["name"] or "query", done["batchId"]
        seconds = done["batchDuration"] / 1000
        lag = _lag(done["sources"][0]) if done["sources"] else None
        if lag is not None:
            PIPELINE_LAG_RECORDS.labels(query).set(lag)
        records = self._watch.counted(query, number) or done["numInputRows"]
        if records == 0:
            return
        PIPELINE_BATCH_SECONDS.labels(query).observe(seconds)
        PIPELINE_LAST_BATCH.labels(query).set_to_current_time()
        self._watch.passed(query, records)
        logger.info(
            "batch done",
            extra={
                "query": query,
                "batch": number,
                "records": records,
                "seconds": round(seconds, 3),
                "lag": lag,
            },
        )

    def onQueryIdle(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        """Pass over that there is nothing new."""

    def onQueryTerminated(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        """Whoever awaits the query reports the reason."""


def _let_spark_report(spark: SparkSession) -> None:
    """Wait for what Spark has still to send its listeners, which it does on a thread of its own."""
    session: Any = spark
    with suppress(Py4JError):  # a JVM that has ended sends nothing
        session._jsparkSession.sparkContext().listenerBus().waitUntilEmpty(_TELLING_MS)


def _lag(source: Mapping[str, Any]) -> int | None:
    """Return how many offsets the journal is ahead of a query, where its source says so."""
    try:
        end, latest = source["endOffset"], source["latestOffset"]
        return sum(
            max(0, int(offset) - int(end[topic][number]))
            for topic, partitions in latest.items()
            for number, offset in partitions.items()
        )
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
