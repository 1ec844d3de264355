"""One attempt in its thread: the consumer is called, and whatever it does becomes a result."""

import logging
from collections.abc import Callable
from typing import Any

from packhorse.clock import Clock
from packhorse.jobs.consumer import Consumer, JobContext, Outcome, Result
from packhorse.jobs.job import JobLost
from packhorse.jobs.store.notes import stored_text
from packhorse.jobs.work.running import Running
from packhorse.runtime.metrics import JOBS_SECONDS
from packhorse.runtime.tracing import TRACEPARENT, continued

logger = logging.getLogger(__name__)

Report = Callable[[Running, Result], None]


def work(
    running: Running, consumer: Consumer, context: JobContext, report: Report, clock: Clock
) -> None:
    """Call the consumer inside the trace of who gave the job, and report; raises nothing."""
    began = clock.monotonic()
    with continued(_headers(running)):
        result = _result(running, consumer, context)
    JOBS_SECONDS.labels(running.job.queue).observe(clock.monotonic() - began)
    report(running, result)


def _result(running: Running, consumer: Consumer, context: JobContext) -> Result:
    try:
        given = consumer(running.job, context)
        result = _checked(given)
    except JobLost as lost:
        logger.info("an attempt was lost", extra=_named(running))
        return Result(Outcome.FAILED, stored_text(str(lost)))
    except BaseException as error:  # also SystemExit: a consumer ends its attempt, not the process
        logger.exception("a job failed", extra=_named(running))
        return Result(Outcome.FAILED, stored_text(f"{type(error).__name__}: {error}"))
    return Result(result.outcome, stored_text(result.message), result.retry_delay)


def _checked(given: object) -> Result:
    if isinstance(given, Outcome):
        return Result(given)
    if not isinstance(given, Result):
        raise TypeError(f"a consumer returns a Result or an Outcome, not {type(given).__name__}")
    return given


def _headers(running: Running) -> dict[str, bytes]:
    trace = running.job.traceparent
    return {} if trace is None else {TRACEPARENT: trace.encode("ascii", "replace")}


def _named(running: Running) -> dict[str, Any]:
    job = running.job
    return {"job": job.number, "topic": job.topic, "attempt": job.attempts}
