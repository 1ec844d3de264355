"""What becomes of a job when an attempt ends: decided here, without I/O."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from packhorse.jobs.job import Attempt, JobState
from packhorse.jobs.store import notifications

MOST_ATTEMPTS = 20
"""Past attempts that a job remembers, the newest."""
_JITTER = 0.25


class How(StrEnum):
    """How an attempt ended: by its consumer, or by others."""

    OK = "OK"
    FAILED = "FAILED"
    CANCEL = "CANCEL"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"
    RELEASED = "RELEASED"
    UNBEGUN = "UNBEGUN"
    """Given back before it was begun."""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """An ACTIVE job, locked, and what its queue says."""

    number: int
    topic: str
    id: str | None
    queue: str
    ordered: bool
    runtime_id: str
    instance: str
    epoch: int
    attempts: int
    max_retries: int
    retry: bool
    retry_delay_s: float
    max_retry_delay_s: float
    keep_history: bool
    again: bool
    """Whether it was given again meanwhile, so that it shall run once more."""
    stop_requested: bool
    ready_at: datetime
    started_at: datetime
    now: datetime
    past_attempts: list[dict[str, Any]]

    @property
    def waited_s(self) -> float:
        """Seconds from when it might have begun until it did."""
        return max(0.0, (self.started_at - self.ready_at).total_seconds())

    @property
    def worked_s(self) -> float:
        """Seconds since it was begun."""
        return max(0.0, (self.now - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True)
class EndDecision:
    """What becomes of a job."""

    held: HeldJob
    how: How
    message: str
    result: JobState
    """What this run of it came to: QUEUED where it is to be tried again."""
    delay_s: float = 0.0
    attempts: int = 0
    retry: bool = False
    past: Attempt | None = None
    """To be remembered."""

    @property
    def state(self) -> JobState:
        """The state that the job has afterwards."""
        return JobState.QUEUED if self.held.again else self.result

    @property
    def kept(self) -> bool:
        """Whether a final job becomes history; with an id always: it shall not run twice."""
        succeeded = self.result is JobState.SUCCEEDED
        return self.held.keep_history or self.held.id is not None or not succeeded

    @property
    def notification(self) -> str | None:
        """The kind of notification, if there is one."""
        if self.result is JobState.SUCCEEDED:
            return notifications.FINISHED
        if self.result.final:
            return notifications.CANCELLED
        return None if self.how in (How.RELEASED, How.UNBEGUN) else notifications.FAILED


def decide(
    held: HeldJob,
    how: How,
    message: str,
    jitter: float,
    retry_delay_s: float | None = None,
    *,
    lengthens: bool = False,
) -> EndDecision:
    """Say what becomes of a job whose attempt ended; `jitter` is a random number of [0, 1).

    `retry_delay_s` is instead of the queue's delay, or where it `lengthens`, if it is longer.
    """
    own_s = backoff(held.attempts, held.retry_delay_s, held.max_retry_delay_s, jitter)
    wanted_s = own_s if retry_delay_s is None else max(own_s if lengthens else 0.0, retry_delay_s)
    result = _result(held, how)
    waits = how in (How.FAILED, How.TIMED_OUT) and not held.again
    counted = how not in (How.RELEASED, How.UNBEGUN)
    is_remembered = how not in (How.OK, How.UNBEGUN)
    return EndDecision(
        held=held,
        how=how,
        message=message,
        result=result,
        delay_s=wanted_s if waits else 0.0,
        attempts=0 if held.again else held.attempts - (0 if counted else 1),
        retry=how is not How.OK and (held.retry or how is not How.UNBEGUN),
        past=_past(held, how, message) if is_remembered else None,
    )


def backoff(failures: int, base_s: float, longest_s: float, jitter: float) -> float:
    """Return the delay after so many failures: doubled with each, up to a quarter shorter."""
    delay = min(longest_s, base_s * 2.0 ** min(max(0, failures - 1), 60))
    return delay * (1 - _JITTER * jitter)


def _result(held: HeldJob, how: How) -> JobState:
    if how is How.OK:
        return JobState.SUCCEEDED
    if held.stop_requested:
        return JobState.STOPPED
    if how is How.CANCEL:
        return JobState.ERROR
    tried = how in (How.FAILED, How.TIMED_OUT, How.LOST)
    if tried and held.max_retries >= 0 and held.attempts > held.max_retries:
        return JobState.GIVEN_UP
    return JobState.QUEUED


def _past(held: HeldJob, how: How, message: str) -> Attempt:
    return Attempt(held.attempts, held.instance, held.started_at, held.now, how.value, message)
