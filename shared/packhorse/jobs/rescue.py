"""Rescue: jobs whose worker's lease is over become anybody's again.

Called by every worker every few seconds, in a transaction as the bookkeeper.
"""

import logging
from dataclasses import dataclass

from psycopg import Connection

from packhorse.jobs.job import JobState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rescued:
    """A job that was taken from a worker."""

    number: int
    topic: str
    instance: str
    """Where it was."""
    state: JobState
    """QUEUED, or GIVEN_UP (logged as a warning), or STOPPED."""


def rescue(connection: Connection, limit: int = 100) -> list[Rescued]:
    """Take a batch of jobs from workers without a lease; call again while it is full.

    The attempt counts and is remembered as LOST; the next one is flagged `retry`.
    """
    raise NotImplementedError


def forget_workers(connection: Connection, after_s: float = 3600.0) -> int:
    """Forget runs that have been without a lease for long; fold their statistics."""
    raise NotImplementedError
