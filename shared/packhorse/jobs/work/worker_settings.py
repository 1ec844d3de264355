"""How a worker of jobs works; all times in seconds."""

import os
from dataclasses import dataclass

from packhorse.jobs.store import leases


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of one process."""

    lease_s: float = leases.LEASE_S
    """How long its jobs stay its own after it was last heard of."""
    renewal_s: float = leases.RENEWAL_S
    poll_s: float = 1.0
    """How often it looks for jobs without a hint, and at what became of its own."""
    rescue_s: float = 5.0
    """How often it looks for jobs of workers that are gone."""
    places: int = 64
    """How many jobs of all queues it has at a time at most."""
    connections: int = 20
    """How many consumers are in `JobContext.completion` at a time; others wait, 10 s at most."""
    cores: int = os.cpu_count() or 1
    """What a queue's `max_parallel` of -1 means."""


DEFAULTS = WorkerSettings()
