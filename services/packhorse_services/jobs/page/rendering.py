"""The pages of the jobs service, and how values of jobs look in them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Response

from packhorse.errors import Permanent
from packhorse.jobs.job import Job, JobState, UnknownJob
from packhorse.jobs.scheduling.errors import UnknownSchedule
from packhorse.jobs.store.queues import UnknownQueue
from packhorse.runtime.pages.rendering import PREFIX, Pages

PAGES = Pages(Path(__file__).parent, f"{PREFIX}/jobs")
_LONGEST_SAID = 200
_UNKNOWN = (UnknownJob, UnknownQueue, UnknownSchedule)


def refused(error: Permanent) -> Response:
    """Return the page that says why something was not done."""
    status = 404 if isinstance(error, _UNKNOWN) else 409
    return PAGES.page("refused.html", status, said=str(error))


def _says(job: Job) -> str:
    """Return how far a job is, or what its last attempt said, in one line."""
    if job.state is not JobState.ACTIVE:
        return _short(job.result_message)
    steps = f" of {job.progress.steps}" if job.progress.steps else ""
    step = f"{job.progress.step}{steps}" if job.progress.step or steps else ""
    return _short(": ".join(part for part in (step, job.progress.message) if part))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]}…"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _shown_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


PAGES.templates.filters.update(says=_says, seconds=_seconds, shown_json=_shown_json)
