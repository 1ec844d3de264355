"""Jobs as values, for what needs no database."""

from datetime import UTC, datetime
from typing import Any

from packhorse.jobs.job import Job, JobState
from packhorse.jobs.store.claims import Claim, Claimed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def made_job(number: int = 1, **given: Any) -> Job:
    """Return a job that was claimed just now."""
    fields: dict[str, Any] = {
        "topic": "test/job",
        "id": None,
        "queue": "main",
        "priority": 0,
        "state": JobState.ACTIVE,
        "properties": {},
        "application": "tests",
        "created_at": NOON,
        "ready_at": NOON,
        "attempts": 1,
        "max_retries": 10,
        "epoch": 1,
        "started_at": NOON,
        **given,
    }
    return Job(number=number, **fields)


def claimed(number: int = 1, timeout_s: float | None = None, **given: Any) -> Claimed:
    """Return the claim of such a job."""
    job = made_job(number, **given)
    return Claimed(Claim(number, "run", job.epoch), job, timeout_s)


def hook_job(number: int = 1, **properties: object) -> Job:
    """Return the job of a hook `cdn` that tells of a node which was added."""
    says = {"change": "added", "watch": "w", "subscriber": "sub1", "paths": ["/a"]}
    told = {**says, "deep_paths": [], **properties}
    return made_job(number, topic="packhorse/hooks/cdn", queue="hooks.cdn", properties=told)
