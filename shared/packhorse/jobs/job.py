"""What a job is: given once, done by exactly one instance, known for a while after."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from packhorse.errors import Permanent, Transient


class JobState(StrEnum):
    """QUEUED and ACTIVE, and the final states, in which a job is history."""

    QUEUED = "QUEUED"
    """Waits: for its turn, its time, or an instance that has a consumer for its topic."""
    ACTIVE = "ACTIVE"
    """An instance works on it, under a lease."""
    SUCCEEDED = "SUCCEEDED"
    STOPPED = "STOPPED"
    """Somebody asked it to stop."""
    GIVEN_UP = "GIVEN_UP"
    """It failed as often as its queue allows, or ended its process as often."""
    ERROR = "ERROR"
    """Its consumer cancelled it: trying again would not help."""
    DROPPED = "DROPPED"
    """Removed before it was done, or meant for an instance that has left."""

    @property
    def final(self) -> bool:
        """Whether a job in this state is history."""
        return self not in (JobState.QUEUED, JobState.ACTIVE)


FINAL_STATES = tuple(state for state in JobState if state.final)


class JobLost(Transient):
    """The job is another attempt's now: its lease ran out, it timed out or it was removed.

    Nothing of the transaction may stay.
    """


class UnknownJob(Permanent):
    """There is no such job, or it was pruned from the history."""


class WrongState(Permanent):
    """The job's state does not allow that; the text says what would."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that did not finish the job: where, when, and how it ended."""

    number: int
    instance: str
    started_at: datetime
    ended_at: datetime
    outcome: str
    """`FAILED`, `TIMED_OUT`, `LOST` (its process died or was paused past its lease), `RELEASED`."""
    reason: str


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a consumer says it is; `eta` is a time of the database's clock."""

    step: int = 0
    steps: int = 0
    """0: not reported."""
    eta: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored. All times are the database's (R28)."""

    number: int
    """Given by the database, unique for ever; names the job in URLs and commands."""
    topic: str
    id: str | None
    """Given by the caller: a topic and an id are one job, however often and where it is given."""
    queue: str
    priority: int
    """-100 to 100; the higher first, in queues that are not ordered."""
    state: JobState
    properties: Mapping[str, Any]
    application: str
    """Who gave it: an instance id, or what an HTTP client calls itself."""
    created_at: datetime
    ready_at: datetime
    """It is not begun before."""
    attempts: int
    """How many were begun, the present one included."""
    max_retries: int
    """After how many failed attempts beyond the first it is given up; -1: never."""
    retry: bool = False
    """Whether an earlier attempt may have done the work, or a part of it."""
    instance: str | None = None
    """Who works on it, or has finished it."""
    epoch: int = 0
    """Grows with every attempt and with whatever ends one."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    stop_requested: bool = False
    only_on: str | None = None
    """The one instance that may do it; `@leader`: the first one that does the topic."""
    schedule: str | None = None
    """The schedule that gave it."""
    progress: JobProgress = JobProgress()
    log: tuple[str, ...] = ()
    """The newest lines of the consumer's log."""
    result_message: str = ""
    """What the last attempt said: a reason, or what was done."""
    past_attempts: tuple[Attempt, ...] = ()
    """The newest attempts that did not finish it."""
    traceparent: str | None = None
    """The trace of who gave it (W3C)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the consumer has set with `JobContext.set_property`."""
