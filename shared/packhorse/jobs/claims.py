"""Claiming jobs: an attempt belongs to one run of a worker, under an epoch.

All functions are called in a READ COMMITTED transaction as the bookkeeper, and it must commit
before a job is begun.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.jobs.job import Job
from packhorse.jobs.leases import Run


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to one attempt, until its run's lease is over or somebody ends it."""

    number: int
    runtime_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that this run may begin."""

    claim: Claim
    job: Job
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a run would take from one queue."""

    queue: str
    topics: Sequence[str]
    """Known topics (`Layout.topics`) of the queue that it has consumers for."""
    places: int
    """How many jobs at most; of an ORDERED queue one is given."""
    consumed: Sequence[str] | None = None
    """ORDERED: the queue's topics that any live instance consumes; others don't hold it up.

    None: as if all were.
    """
    turn: str = ""
    """TOPIC_ROUND_ROBIN: the topic that this run had last."""


def claim(
    connection: Connection, run: Run, wishes: Sequence[Wish], *, leads: bool = False
) -> list[Claimed]:
    """Claim jobs that may be begun now, the first in order of each queue. Notifies START.

    Nothing without a valid lease. `leads`: whether this instance leads, for jobs `only_on` LEADER.
    Raises nothing of its own; jobs that others claim at the moment are passed over.
    """
    raise NotImplementedError


def check(connection: Connection, held: Claim) -> None:
    """Hold the attempt until the transaction ends: nobody ends it before. Raises `JobLost`."""
    raise NotImplementedError
