"""How jobs, their queues and schedules look as tables."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from packhorse.jobs.scheduling.timing import period_text
from packhorse_services.cli.client.views import View


def _note(document: Mapping[str, Any]) -> str:
    return "" if document["current"] else "which instances live, and do what, is not known now"


JOBS = View(
    rows="jobs",
    name="number",
    columns={
        "NUMBER": "number",
        "STATE": "state",
        "TOPIC": "topic",
        "ID": "id",
        "QUEUE": "queue",
        "ATTEMPTS": "attempts",
        "INSTANCE": "instance",
        "SAID": "said",
    },
    wide={
        "PRIORITY": "priority",
        "RETRY": "retry",
        "CREATED": "created_at",
        "READY": "ready_at",
        "STARTED": "started_at",
        "FINISHED": "finished_at",
        "BY": "application",
        "SCHEDULE": "schedule",
        "ONLY ON": "only_on",
    },
)
ATTEMPTS = View(
    rows="past_attempts",
    name="number",
    columns={
        "ATTEMPT": "number",
        "OUTCOME": "outcome",
        "INSTANCE": "instance",
        "ENDED": "ended_at",
        "REASON": "reason",
    },
    wide={"STARTED": "started_at"},
)
QUEUES = View(
    rows="queues",
    name="name",
    columns={
        "QUEUE": "name",
        "TOPICS": "patterns",
        "TYPE": "type",
        "SUSPENDED": "suspended",
        "QUEUED": "statistics.queued",
        "ACTIVE": "statistics.active",
        "SUCCEEDED": "statistics.succeeded",
        "CANCELLED": "statistics.cancelled",
    },
    wide={
        "FAILED ATTEMPTS": "statistics.failed_attempts",
        "WAITED": "statistics.average_waiting_s",
        "TOOK": "statistics.average_processing_s",
        "RANKING": "ranking",
        "MAX PARALLEL": "max_parallel",
        "MAX RETRIES": "max_retries",
        "TIME-OUT": "timeout_s",
    },
)
TOPICS = View(
    rows="topics",
    name="topic",
    columns={
        "TOPIC": "topic",
        "QUEUED": "statistics.queued",
        "ACTIVE": "statistics.active",
        "SUCCEEDED": "statistics.succeeded",
        "CANCELLED": "statistics.cancelled",
        "WITHOUT A CONSUMER SINCE": "unconsumed_since",
        "ON": "unconsumed_on",
    },
    wide={"WAITED": "statistics.average_waiting_s", "TOOK": "statistics.average_processing_s"},
    note=_note,
)
SCHEDULES = View(
    rows="schedules",
    name="name",
    columns={
        "SCHEDULE": "name",
        "WHEN": "when",
        "NEXT": "next_fire_time",
        "LAST": "last_fire_time",
        "SUSPENDED": "suspended",
        "GIVES": "gives",
    },
    wide={
        "RUN ON": "run_on",
        "MISSED": "missed",
        "TIMES LEFT": "times_left",
        "BY": "origin",
        "DESCRIPTION": "description",
    },
)


def job_row(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a job."""
    return {**job, "said": _said(job)}


def _said(job: Mapping[str, Any]) -> str:
    """Return how far a job is, or how it ended, in one line."""
    if job["state"] != "ACTIVE":
        return str(job["result_message"])
    reported = "stopping " if job["stop_requested"] else ""
    return f"{reported}{progress_text(job['progress'])}".strip()


def progress_text(progress: Mapping[str, Any]) -> str:
    """Return a job's progress in words: `3 of 10: what it does`; empty when there is none."""
    steps = f" of {progress['steps']}" if progress["steps"] else ""
    step = f"{progress['step']}{steps}" if progress["step"] or steps else ""
    return ": ".join(part for part in (step, str(progress["message"])) if part)


def queue_row(queue: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a queue; a `+` says that more may wait than were counted."""
    statistics = queue["statistics"]
    if not statistics["has_more"]:
        return {**queue}
    return {**queue, "statistics": {**statistics, "queued": f"{statistics['queued']}+"}}


def topic_row(topic: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a topic, with the first moment since which a consumer is missing."""
    missing = topic["unconsumed_on"]
    since = [topic["unconsumed_since"], *(one["since"] for one in missing)]
    return {
        **queue_row(topic),
        "unconsumed_since": min(filter(None, since), default=None),
        "unconsumed_on": [one["only_on"] for one in missing],
    }


def schedule_row(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a schedule."""
    gives = f"{schedule['action'].lower()} {schedule['topic']}"
    return {**schedule, "when": _when(schedule), "gives": gives}


def _when(schedule: Mapping[str, Any]) -> str:
    if schedule["cron"]:
        zone = schedule["time_zone"]
        return str(schedule["cron"]) if zone == "UTC" else f"{schedule['cron']} ({zone})"
    if schedule["period_s"]:
        return f"every {period_text(timedelta(seconds=schedule['period_s']))}"
    return f"at {schedule['at']}"
