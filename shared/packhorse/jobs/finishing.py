"""Ending attempts: every write has the claim's epoch, or changes nothing.

All functions are called in a READ COMMITTED transaction as the bookkeeper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg import Connection

from packhorse.jobs.claims import Claim
from packhorse.jobs.consumer import Result
from packhorse.jobs.job import Job, JobState, Progress


@dataclass(frozen=True, slots=True)
class Notes:
    """What a consumer has said since it was stored last."""

    progress: Progress | None = None
    log: Sequence[str] = ()
    """Lines to add; the newest `MOST_LINES` are kept."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Properties to set."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended, and how. `Outcome.ASYNC` is no end."""

    claim: Claim
    result: Result
    notes: Notes = Notes()


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of it."""

    claim: Claim
    state: JobState | None
    """QUEUED: it is tried again, or runs once more; None: the attempt was lost before."""
    ready_at: datetime | None = None
    """With QUEUED: not before."""


def finish(connection: Connection, ended: Sequence[Ended], *, wait: bool = True) -> list[Ending]:
    """End attempts; return what came of each, in the same order. Writes statistics.

    Notifies FINISHED, FAILED (it will be tried again) or CANCELLED. In one transaction with the
    work, and rolled back when the state is None, it makes the work's effect happen once.
    """
    raise NotImplementedError


def time_out(connection: Connection, claim: Claim, reason: str) -> Ending:
    """End an attempt that takes too long, as a failure; its thread loses the job.

    State ACTIVE: a transaction holds the attempt just now (`claims.check`); try again.
    """
    raise NotImplementedError


def release(connection: Connection, claims: Sequence[Claim], reason: str) -> list[Ending]:
    """Give attempts back that were not begun, or were stopped; they are not counted."""
    raise NotImplementedError


def end_waiting(
    connection: Connection, numbers: Sequence[int], state: JobState, reason: str
) -> list[Job]:
    """End jobs that are QUEUED, as STOPPED or DROPPED; return those that were.

    Notifies CANCELLED, or REMOVED where DROPPED.
    """
    raise NotImplementedError


def note(connection: Connection, noted: Sequence[tuple[Claim, Notes]]) -> set[Claim]:
    """Store what consumers have said; return the claims that are lost."""
    raise NotImplementedError
