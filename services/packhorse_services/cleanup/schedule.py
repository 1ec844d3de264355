"""When the cleanup runs by itself: a schedule, which an operator sees and may change."""

from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, Missed, ScheduleDefinition
from packhorse.jobs.scheduling.timing import When

RUN = "packhorse/cleanup/run"
"""Topic of the jobs that are runs; the property `run` names one that was asked for."""

QUEUE = QueueConfiguration(
    name="cleanup",
    patterns=(RUN,),
    type=QueueType.UNORDERED,
    max_parallel=1,
    max_retries=-1,
    retry_delay_s=5,
    max_retry_delay_s=900,
)
"""A run that fails comes again until it succeeds, as a package does: what ended it may be over.

Runs that meet wait for each other's turn.
"""


def schedule_of(when: When) -> ScheduleDefinition:
    """Return the schedule that the service declares."""
    return ScheduleDefinition(
        name="packhorse.cleanup",
        when=when,
        action=JobAction(RUN),
        description="Removes packages from the blob store that the journal has forgotten",
        concurrent=False,
        missed=Missed.ONCE,
    )
