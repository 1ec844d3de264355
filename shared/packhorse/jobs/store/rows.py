"""Jobs as rows: the columns that are read, and the job that they make."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import orjson
from psycopg import Connection, Cursor
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from packhorse.jobs.job import Attempt, Job, JobProgress, JobState

_FIELDS = tuple(field.name for field in fields(Job))

UNFINISHED = """
    j.number, j.topic, j.id, t.queue, j.priority, j.state, j.properties, j.application,
    j.created_at, j.ready_at, j.attempts, coalesce(j.max_retries, q.max_retries) AS max_retries,
    j.retry, j.instance, j.epoch, j.started_at, NULL::timestamptz AS finished_at, j.stop_requested,
    CASE WHEN j.open_at IS NULL THEN j.only_on ELSE '' END AS only_on, j.schedule, j.progress,
    j.log, j.result_message, j.past_attempts, j.traceparent, j.extra
"""
"""Columns of an unfinished job, for `job_of`; select them from `FROM_UNFINISHED`."""

FROM_UNFINISHED = """
    jobs.job j JOIN jobs.topic t ON t.topic = j.topic JOIN jobs.queue q ON q.name = t.queue
"""

FINISHED = """
    j.number, j.topic, j.id, j.queue, j.priority, j.state, j.properties, j.application,
    j.created_at, j.ready_at, j.attempts, j.max_retries,
    j.retry, j.instance, j.epoch, j.started_at, j.finished_at, j.stop_requested,
    j.only_on, j.schedule, j.progress,
    j.log, j.result_message, j.past_attempts, j.traceparent, j.extra
"""
"""The same columns of history, from `jobs.finished j`: both can be parts of a UNION ALL."""


def job_cursor(connection: Connection) -> Cursor[dict[str, Any]]:
    """Return a cursor for rows of jobs and schedules; it reads their JSON with orjson.

    That is much faster, and gives 1e20 back as it was, which jsonb writes with all its digits.
    """
    cursor = connection.cursor(row_factory=dict_row)
    set_json_loads(orjson.loads, cursor)
    return cursor


def job_of(row: Mapping[str, Any]) -> Job:
    """Return the job of a row with these columns (psycopg's `dict_row`)."""
    members = {name: row[name] for name in _FIELDS} | {
        "state": JobState(row["state"]),
        "instance": row["instance"] or None,
        "only_on": row["only_on"] or None,
        "progress": progress_of(row["progress"]),
        "log": tuple(row["log"]),
        "past_attempts": tuple(attempt_of(attempt) for attempt in row["past_attempts"]),
    }
    return Job(**members)


def progress_of(stored: Mapping[str, Any]) -> JobProgress:
    """Return what a consumer has said of its progress."""
    eta = stored.get("eta")
    return JobProgress(
        step=stored.get("step", 0),
        steps=stored.get("steps", 0),
        eta=datetime.fromisoformat(eta) if eta else None,
        message=stored.get("message", ""),
    )


def stored_progress(progress: JobProgress) -> dict[str, Any]:
    """Return progress as it is stored."""
    return {
        "step": progress.step,
        "steps": progress.steps,
        "eta": progress.eta and progress.eta.isoformat(),
        "message": progress.message,
    }


def attempt_of(stored: Mapping[str, Any]) -> Attempt:
    """Return an attempt of the past."""
    return Attempt(
        number=stored["number"],
        instance=stored["instance"],
        started_at=datetime.fromisoformat(stored["started_at"]),
        ended_at=datetime.fromisoformat(stored["ended_at"]),
        outcome=stored["outcome"],
        reason=stored["reason"],
    )


def stored_attempt(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as it is stored."""
    return {
        "number": attempt.number,
        "instance": attempt.instance,
        "started_at": attempt.started_at.isoformat(),
        "ended_at": attempt.ended_at.isoformat(),
        "outcome": attempt.outcome,
        "reason": attempt.reason,
    }
