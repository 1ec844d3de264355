"""Answers of a jobs, a topology and a reports service that are written, for the console's pages."""

from typing import Any

from tests.harness.written_publisher import AT

_ARCHIVE = "packhorse.pipeline.archive"
_DONE = {
    "queued": 3,
    "delayed": 1,
    "active": 1,
    "has_more": False,
    "succeeded": 1_204,
    "cancelled": 12,
    "failed_attempts": 31,
    "average_waiting_s": 0.4,
    "average_processing_s": 12.3,
}


def job(number: int, state: str = "SUCCEEDED", **more: Any) -> dict[str, Any]:
    """Return a job as the service lists it."""
    ended = state not in ("QUEUED", "ACTIVE")
    shown = {
        "number": number,
        "topic": "packhorse/pipeline/archive",
        "id": None,
        "queue": "main",
        "priority": 0,
        "state": state,
        "application": "",
        "created_at": AT,
        "ready_at": AT,
        "attempts": 0 if state == "QUEUED" else 1,
        "max_retries": 10,
        "retry": False,
        "instance": None if state == "QUEUED" else "pipeline-worker",
        "started_at": None if state == "QUEUED" else AT,
        "finished_at": AT if ended else None,
        "stop_requested": False,
        "only_on": None,
        "schedule": _ARCHIVE,
        "progress": {"step": 0, "steps": 0, "eta": None, "message": ""},
        "result_message": "",
    }
    return {**shown, **more}


def schedule(name: str, **more: Any) -> dict[str, Any]:
    """Return a schedule as the service shows it."""
    shown = {
        "name": name,
        "description": "Archives what is in the journal",
        "cron": "*/15 * * * *",
        "time_zone": "UTC",
        "period_s": None,
        "at": None,
        "action": "JOB",
        "topic": "packhorse/pipeline/archive",
        "properties": {},
        "run_on": "SINGLE",
        "concurrent": False,
        "suspended": False,
        "next_fire_time": AT,
        "last_fire_time": AT,
        "times_left": None,
        "origin": "@declared",
        "changed": False,
    }
    return {**shown, **more}


def measured(subscriber: str, **more: Any) -> dict[str, Any]:
    """Return a row of the delivery report."""
    row = {"hour": AT, "subscriber": subscriber, "publisher_agent": "main", "delivered": 812}
    counts = {"failures": 0, "removed": 0, "backlog_end": 0, "blocked_ms": 0}
    return {**row, "latency_p95_ms": 840, **counts, **more}


def written_work(answers: dict[str, Any]) -> None:
    """Let somebody answer as those services do."""
    _jobs(answers)
    _schedules(answers)
    _topology(answers)
    put = {"id": 7, "at": AT, "caller": "anna", "address": "10.0.0.9", "operation": "putNode"}
    on = {"method": "PUT", "object": "/content/site/news", "about": {}, "trace": "t1"}
    answers["GET /acts"] = {"acts": [{**put, **on}]}
    rows = [
        measured("web-1", hour=f"2026-01-01T{hour:02}:00:00Z", latency_p95_ms=400 * hour)
        for hour in range(3, 13)
    ]
    rows.append(measured("sub2", failures=14, backlog_end=3, blocked_ms=90_000))
    day = {"from": "2025-12-31T13:00:00Z", "to": "2026-01-01T13:00:00Z"}
    answers["GET /reports/delivery"] = {**day, "next": None, "rows": rows}
    answers["GET /reports/delivery.html"] = b"<!doctype html><title>Delivery</title>"


def _jobs(answers: dict[str, Any]) -> None:
    half = {"step": 3, "steps": 10, "eta": AT, "message": "scaling"}
    rows = [
        job(9, "QUEUED", topic="mail/send", id="cover"),
        job(8, "ACTIVE", topic="images/thumbnail", progress=half),
        job(7, "GIVEN_UP", retry=True, result_message="exit code 1: no space left on device"),
        job(6),
    ]
    answers["GET /jobs"] = {"jobs": rows, "next": None}
    attempt = {"number": 1, "instance": "pipeline-worker", "started_at": AT, "ended_at": AT}
    answers["GET /jobs/7"] = {
        **rows[2],
        "properties": {"size": 3, "kind": "image"},
        "extra": {},
        "log": ["began", "reads 12 parts", "no space left on device"],
        "past_attempts": [{**attempt, "outcome": "LOST", "reason": "its lease ran out"}],
        "traceparent": None,
    }
    answers["POST /jobs/retry"] = {"matching": 2, "changed": 0, "passed_over": 0, "next": None}
    missing = {"unconsumed_since": AT, "unconsumed_on": []}
    answers["GET /job-topics"] = {
        "topics": [
            {"topic": "mail/send", "statistics": {"queued": 1, "has_more": False}, **missing}
        ]
    }
    queue = {"patterns": ["**"], "type": "TOPIC_ROUND_ROBIN", "suspended": False}
    mail = {**queue, "name": "mail", "patterns": ["mail/**"], "suspended": True}
    queues = [{**queue, "name": "main", "statistics": _DONE}, {**mail, "statistics": _DONE}]
    answers["GET /job-queues"] = {"queues": queues}


def _schedules(answers: dict[str, Any]) -> None:
    upkeep = schedule("packhorse.pipeline.upkeep", suspended=True, cron="40 3 * * *")
    answers["GET /schedules"] = {"schedules": [schedule(_ARCHIVE), upkeep], "next": None}
    answers[f"GET /schedules/{_ARCHIVE}"] = schedule(_ARCHIVE)
    fired = {"fire_time": AT, "outcome": "FIRED", "instance": "jobs", "jobs": [7], "missed": 0}
    skipped = {**fired, "outcome": "SKIPPED", "jobs": [], "reason": "job 7 is not done"}
    times = [skipped, {**fired, "reason": ""}]
    answers[f"GET /schedules/{_ARCHIVE}/fire-times"] = {"fire_times": times, "next": None}


def _topology(answers: dict[str, Any]) -> None:
    own = {"packhorse.role": "publisher", "packhorse.agent": "main", "packhorse.version": "0.1.0"}
    instances = [
        {"id": "publisher", "leader": True, "local": False, "properties": own},
        {"id": "topology", "leader": False, "local": True, "properties": {"rack": "9"}},
    ]
    cluster = {"id": "69008819-8f2b", "local": True, "leader": "publisher", "instances": instances}
    answers["GET /topology"] = {
        "current": True,
        "local_instance": "topology",
        "clusters": [cluster],
    }
    peer = {"direction": "out", "url": "http://peer.example", "instance_id": "", "cluster_id": ""}
    failed = {"state": "FAILED", "reason": "nobody answers", "next_exchange": AT}
    answers["GET /topology/connectors"] = {
        "connectors": [{**peer, **failed, "address": "", "last_exchange": None}]
    }
    came = {"added": ["publisher"], "removed": [], "leaders": [], "changed": []}
    change = {"time": AT, "kind": "CHANGED", **came}
    answers["GET /topology/history"] = {"trouble": "", "changes": [change]}
    numbers = {"seq": 7, "final": True, "me": 1, "active": [1, 2], "deactivating": []}
    names = {"1": "topology", "2": "publisher"}
    answers["GET /topology/cluster-view"] = {**numbers, "inactive": [3], "instances": names}
