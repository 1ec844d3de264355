"""One attempt under way in this process, and its thread, which makes a result of what happens."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import orjson

from packhorse.clock import Clock, SystemClock
from packhorse.jobs.consumer import Cancel, ContextConsumer, JobContext, Outcome, Result, Retry
from packhorse.jobs.job import JobLost, JobProgress
from packhorse.jobs.names import InvalidProperties, require_properties
from packhorse.jobs.store.claims import Claimed
from packhorse.jobs.store.notes import MOST_LINES, Notes, stored_text
from packhorse.runtime.metrics import JOBS_SECONDS
from packhorse.runtime.tracing import TRACEPARENT, continued

logger = logging.getLogger(__name__)


class StopReason(StrEnum):
    """Why an attempt should end soon."""

    REQUESTED = "a stop was requested"
    LEAVING = "the process ends"
    TIME = "its time is over"
    LOST = "another attempt may have begun"


class RunningAttempt:
    """An attempt; safe for threads.

    It is closed once, by whatever ends it first here; the database has the last word.
    """

    def __init__(self, claimed: Claimed, clock: Clock | None = None) -> None:
        """Take the job as it was claimed just now."""
        self.job, self.claim = claimed.job, claimed.claim
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        limit = claimed.timeout_s
        self.deadline = None if limit is None else self._began + limit
        """The monotonic time at which its time is over."""
        self.completing = False
        """Whether a transaction is under way that ends it: then its end may come any time."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._reasons: list[StopReason] = []
        self._closed = False
        self._progress = self.job.progress
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._extra = dict(self.job.extra)
        self._reported_progress = self._reported_extra = False

    @property
    def stop_requested(self) -> bool:
        """Whether it should end soon."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until it should end; returns whether it should."""
        return self._stop.wait(max(0.0, seconds))

    def request_stop(self, why: StopReason) -> bool:
        """Ask the consumer to end; false when it was asked for the same reason before."""
        with self._lock:
            if why in self._reasons:
                return False
            self._reasons.append(why)
        self._stop.set()
        return True

    def stop_requested_for(self, why: StopReason) -> bool:
        """Return whether it was asked to end for this reason."""
        with self._lock:
            return why in self._reasons

    def close(self) -> bool:
        """Let nothing that the consumer returns count from now on; true for who closed it."""
        with self._lock:
            was_open, self._closed = not self._closed, True
            return was_open

    @property
    def is_closed(self) -> bool:
        """Whether something has ended it."""
        with self._lock:
            return self._closed

    def require_open(self) -> None:
        """Raise `JobLost` when something has ended it."""
        if self.is_closed or self.stop_requested_for(StopReason.LOST):
            raise JobLost(f"attempt {self.job.attempts} of job {self.job.number} has ended")

    def say_progress(self, progress: JobProgress, eta: timedelta | None) -> None:
        """Note how far it is; an empty message and missing steps stay as they were."""
        with self._lock:
            before = self._progress
            self._progress = replace(
                progress,
                steps=progress.steps or before.steps,
                eta=before.eta if eta is None else self._now(eta),
                message=stored_text(progress.message) or before.message,
            )
            self._reported_progress = True

    def say_line(self, line: str) -> None:
        """Note a line of the log."""
        with self._lock:
            self._lines.append(stored_text(line))

    def say_property(self, name: str, value: Any) -> None:
        """Note a property. Raises `InvalidProperties` when all of them are too large."""
        if not name:
            raise InvalidProperties("a property has a name")
        with self._lock:
            wanted = require_properties({**self._extra, name: value})
            self._extra = orjson.loads(orjson.dumps(wanted))
            self._reported_extra = True

    def take_notes(self) -> Notes:
        """Return what is to be stored, which is then taken as stored; see `give_back`."""
        with self._lock:
            notes = Notes(
                self._progress if self._reported_progress else None,
                tuple(self._lines),
                dict(self._extra) if self._reported_extra else {},
            )
            self._lines.clear()
            self._reported_progress = self._reported_extra = False
            return notes

    def give_back(self, notes: Notes) -> None:
        """Take back what could not be stored; what was said meanwhile is newer."""
        with self._lock:
            self._lines = deque((*notes.log, *self._lines), maxlen=MOST_LINES)
            self._reported_progress |= notes.progress is not None
            self._reported_extra |= bool(notes.extra)

    def _now(self, ahead: timedelta) -> datetime | None:
        """Return a time of the database's clock, as far as this process can know (R28)."""
        if self.job.started_at is None:
            return None
        elapsed = timedelta(seconds=self._clock.monotonic() - self._began)
        return self.job.started_at + elapsed + ahead


Report = Callable[[RunningAttempt, Result], None]


def work(
    running: RunningAttempt,
    consumer: ContextConsumer,
    context: JobContext,
    report: Report,
    clock: Clock,
) -> None:
    """Call the consumer inside the trace of who gave the job, and report; raises nothing."""
    began = clock.monotonic()
    with continued(_headers(running)):
        result = _result(running, consumer, context)
    JOBS_SECONDS.labels(running.job.queue).observe(clock.monotonic() - began)
    report(running, result)


def _result(running: RunningAttempt, consumer: ContextConsumer, context: JobContext) -> Result:
    try:
        result = _checked(_given(running, consumer, context))
    except JobLost as lost:
        logger.info("an attempt was lost: %s", lost, extra=_named(running))
        return Result(Outcome.FAILED, stored_text(str(lost)))
    except BaseException as error:  # also SystemExit: a consumer ends its attempt, not the process
        said = stored_text(f"{type(error).__name__}: {error}")
        ended = " after its attempt had ended" if running.is_closed else ""
        logger.exception("a consumer raised%s: %s", ended, said, extra=_named(running))
        return Result(Outcome.FAILED, said)
    return replace(result, message=stored_text(result.message))


def _given(running: RunningAttempt, consumer: ContextConsumer, context: JobContext) -> object:
    try:
        return consumer(running.job, context)
    except Cancel as cancelled:
        return Result(Outcome.CANCEL, str(cancelled))
    except Retry as retry:
        return Result(Outcome.FAILED, str(retry), retry.after, retry.lengthens)


def _checked(given: object) -> Result:
    if given is None:
        return Result(Outcome.OK)
    if isinstance(given, Outcome):
        return Result(given)
    if not isinstance(given, Result):
        raise TypeError(
            f"a consumer returns a Result, an Outcome or None, not {type(given).__name__}"
        )
    return given


def _headers(running: RunningAttempt) -> dict[str, bytes]:
    trace = running.job.traceparent
    return {} if trace is None else {TRACEPARENT: trace.encode("ascii", "replace")}


def _named(running: RunningAttempt) -> dict[str, Any]:
    job = running.job
    return {"job": job.number, "topic": job.topic, "attempt": job.attempts}
