"""How far the archive is: a log line and metrics for each batch."""

import logging
from dataclasses import dataclass

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
    """Reports the progress of one run."""

    def __init__(self) -> None:
        self._done = Done()

    @property
    def done(self) -> Done:
        """What the run has done; a batch counts once all tables have it."""
        return self._done

    def expect(self, records: int) -> None:
        """Say how many records the query has before it, which begins now or once more."""
        logger.info("query begins", extra={"query": QUERY, "waiting": records})
        PIPELINE_LAG_RECORDS.labels(QUERY).set(records)

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
        told = {"batch": batch, "records": records, "seconds": round(seconds, 3), "lag": lag}
        logger.info("batch done", extra={"query": QUERY, **told})
