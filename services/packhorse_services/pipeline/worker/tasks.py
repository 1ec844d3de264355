"""Which tasks there are as jobs, with the schedules that a worker declares: all suspended.

Whoever wants them resumes them. A task that an operator runs from a scheduler of their own, as
cron, would be done twice otherwise.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, Missed, ScheduleDefinition
from packhorse.jobs.scheduling.timing import Cron

_TOPICS = "packhorse/pipeline"

QUEUE = QueueConfiguration(
    name="pipeline",
    patterns=(f"{_TOPICS}/**",),
    type=QueueType.UNORDERED,
    max_parallel=1,
    max_retries=2,
    retry_delay_s=60.0,
)
"""A worker runs one task at a time: each takes the memory that Spark was given."""


@dataclass(frozen=True, slots=True)
class Task:
    """A command of the pipeline without options, and when it is worth running."""

    name: str
    cron: str
    description: str

    @property
    def topic(self) -> str:
        """The topic of its jobs."""
        return f"{_TOPICS}/{self.name}"

    @property
    def command(self) -> Sequence[str]:
        """What is run; nothing of a job comes into it."""
        return (sys.executable, "-m", "packhorse_services.pipeline", self.name)

    @property
    def schedule(self) -> ScheduleDefinition:
        """Its schedule, as a worker declares it."""
        return ScheduleDefinition(
            name=f"packhorse.pipeline.{self.name}",
            when=Cron(self.cron),
            action=JobAction(self.topic),
            description=self.description,
            concurrent=False,
            missed=Missed.ONCE,
            suspended=True,
        )


TASKS = (
    Task("archive", "*/15 * * * *", "Archives what is in the journal"),
    Task("measures", "20 * * * *", "Measures how fast packages were delivered"),
    Task("upkeep", "40 3 * * *", "Compacts the tables and deletes days that have expired"),
)
