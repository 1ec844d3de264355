"""What is reported about jobs: events that reach every instance when the transaction commits.

Nothing is decided by a notification. Its properties are what the job was at that time.
"""

from packhorse.jobs.event_store import NewEvent
from packhorse.jobs.job import Job

ADDED, START, FINISHED, FAILED, CANCELLED, REMOVED = (
    "ADDED",
    "START",
    "FINISHED",
    "FAILED",
    "CANCELLED",
    "REMOVED",
)
PREFIX = "packhorse/job/"
"""Topics of notifications begin so."""


def notification(kind: str, job: Job, application: str, reason: str = "") -> NewEvent:
    """Return the event that reports a job, from `application`, which gets it too."""
    return NewEvent(
        topic=PREFIX + kind,
        application=application,
        properties={
            "number": job.number,
            "topic": job.topic,
            "id": job.id,
            "queue": job.queue,
            "state": job.state.value,
            "instance": job.instance,
            "attempts": job.attempts,
            "reason": reason,
        },
        echo=True,
    )
