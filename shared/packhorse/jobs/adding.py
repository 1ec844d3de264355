"""Giving jobs, in the caller's own transaction; a topic and an id are one job.

All functions are called in a READ COMMITTED transaction as the bookkeeper; the jobs are there for
others when it commits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from psycopg import Connection

from packhorse.jobs.job import Job

PREFERENCE_S = 2.0
"""How long a queue that prefers the creating instance keeps a job for it."""
LEADER = "@leader"
"""As `only_on`: whoever leads when the job is begun."""


class Verdict(StrEnum):
    """What came of giving a job."""

    ADDED = "ADDED"
    EXISTING = "EXISTING"
    """Another application has given it (or nobody in particular), so nothing was changed."""
    UPDATED = "UPDATED"
    """It was QUEUED; it has the new properties."""
    REACTIVATED = "REACTIVATED"
    """It was finished, and is QUEUED again; or ACTIVE, and will run once more with the new ones."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be given."""

    topic: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    priority: int = 0
    """-100 to 100."""
    ready_at: datetime | None = None
    """With a time zone; not begun before. Excludes `delay`."""
    delay: timedelta | None = None
    """From now, by the database's clock."""
    only_on: str | None = None
    """An instance id, or `LEADER`."""
    max_retries: int | None = None
    """None: as its queue says."""
    schedule: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """The job, and what came of giving it."""

    job: Job
    verdict: Verdict


def add_job(connection: Connection, application: str, job: NewJob) -> Added:
    """Give a job; see `add_jobs`."""
    return add_jobs(connection, application, [job])[0]


def add_jobs(connection: Connection, application: str, jobs: Sequence[NewJob]) -> list[Added]:
    """Give jobs; return what came of each, in the same order. Notifies ADDED for what is QUEUED.

    `application` "" never changes a job that is there. Raises `InvalidName`, `InvalidProperties`,
    `InvalidJob` before anything is written, `TooManyTopics`.
    """
    raise NotImplementedError


def requeue_finished(connection: Connection, numbers: Sequence[int]) -> list[Job]:
    """Make finished jobs QUEUED again under their numbers, their attempts counted anew.

    Returns those that are; others are not finished, or have been forgotten. Notifies ADDED.
    """
    raise NotImplementedError
