"""How far the archive is: a bar for who watches, a log line and metrics for all."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from packhorse.runtime.metrics import (
    PIPELINE_BATCH_SECONDS,
    PIPELINE_LAG_RECORDS,
    PIPELINE_LAST_BATCH,
    PIPELINE_RECORDS,
)

logger = logging.getLogger(__name__)

QUERY = "archive"
"""The name of the archive's one query, in the log, the metrics, and for Spark."""


@dataclass(frozen=True, slots=True)
class Done:
    """What the batches of a run have dealt with."""

    records: int = 0
    batches: int = 0


class ArchiveProgress:
    """Reports the progress of one run.

    On a terminal that is a bar; everywhere a log line and metrics for each batch.
    """

    def __init__(self, *, bar: bool | None = None) -> None:
        wanted = sys.stderr.isatty() if bar is None else bar
        self._bar = _bar() if wanted else None
        self._task = None if self._bar is None else self._bar.add_task(QUERY, total=None)
        self._done = Done()

    @property
    def done(self) -> Done:
        """What the run has done; a batch counts once all tables have it."""
        return self._done

    def expect(self, records: int) -> None:
        """Say how many records the query has before it, which begins now or once more."""
        logger.info("query begins", extra={"query": QUERY, "waiting": records})
        PIPELINE_LAG_RECORDS.labels(QUERY).set(records)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=self._done.records + records)

    def passed(self, batch: int, records: int, *, seconds: float, lag: int | None) -> None:
        """Count a batch; one without records counts only for `lag`, the offsets behind it."""
        if lag is not None:
            PIPELINE_LAG_RECORDS.labels(QUERY).set(lag)
        if records == 0:
            return
        PIPELINE_RECORDS.labels(QUERY).inc(records)
        PIPELINE_BATCH_SECONDS.labels(QUERY).observe(seconds)
        PIPELINE_LAST_BATCH.labels(QUERY).set_to_current_time()
        self._done = Done(self._done.records + records, self._done.batches + 1)
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, records)
        told = {"batch": batch, "records": records, "seconds": round(seconds, 3), "lag": lag}
        logger.info("batch done", extra={"query": QUERY, **told})

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar, where one is wanted, while the block runs."""
        if self._bar is None:
            yield
            return
        with self._bar:
            yield


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
