"""Jobs, their queues and schedules, and the events beside them."""

from collections.abc import Mapping
from typing import Any

from packhorse.client.calls.distributing import checked_key
from packhorse.client.errors import NotInTime
from packhorse.client.exchange import (
    Document,
    Operation,
    Pause,
    Request,
    answered_by_key,
    deadline_in,
    done,
    given,
    listed,
    repeated_by_key,
    requested,
    segment,
    with_query,
)

_POLL_S = 0.25
_PAGE = 200
_OPEN = ("QUEUED", "ACTIVE")


def add_job(
    topic: str,
    properties: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the word of the API
    key: str | None = None,
    **options: Any,
) -> Operation[Document]:
    """Give a job, which exactly one instance does; return `job`, and the `verdict` on it.

    A topic and an `id` are one job, however often it is given. `options` are `application`,
    `priority`, `delay_s`, `only_on`. Every try has the same idempotency key.
    """
    body = {"topic": topic, **given(properties=properties, id=id, **options)}
    headers = {"Idempotency-Key": checked_key(key)}
    sent = Request("POST", "/jobs", "jobs", body=body, headers=headers, repeatable=True)
    return (yield from repeated_by_key(sent, "added"))


def job(number: int) -> Operation[Document]:
    """Return a job: its `state`, `attempts`, `log`, `progress`, `result_message`."""
    return (yield from requested(Request("GET", f"/jobs/{number}", "jobs")))


def jobs(
    *,
    state: str | None = None,
    topic: str | None = None,
    queue: str | None = None,
    id: str | None = None,  # noqa: A002 - the word of the API
    limit: int = 100,
) -> Operation[list[Document]]:
    """Return unfinished jobs, oldest first; with `state="HISTORY"` the others, newest first."""
    path = with_query("/jobs", state=state, topic=topic, queue=queue, id=id)
    return (yield from listed(path, "jobs", limit, _PAGE, "jobs"))


def job_ended(number: int, seconds: float = 60.0) -> Operation[Document]:
    """Return a job once it has ended, well or not. Raises `NotInTime`."""
    deadline = yield from deadline_in(seconds)
    while True:
        now: float = yield Pause()
        found = yield from requested(
            Request("GET", f"/jobs/{number}", "jobs", patience_s=max(0.0, deadline - now))
        )
        if found["state"] not in _OPEN:
            return Document(found)
        now = yield Pause(_POLL_S)
        if now > deadline:
            raise NotInTime(f"job {number} is {found['state']} after {seconds:g} s", found)


def stop_job(number: int) -> Operation[Document]:
    """Stop a job: one that waits at once, one that runs as soon as its consumer looks."""
    return (yield from requested(_post(f"/jobs/{number}/stop")))


def retry_job(number: int) -> Operation[Document]:
    """Let a job that has ended run once more."""
    return (yield from requested(_post(f"/jobs/{number}/retry")))


def remove_job(number: int, *, even_active: bool = False) -> Operation[None]:
    """Remove a job. Raises `Conflict` for one that runs, unless `even_active`.

    It is sent once: the first one ends a job that waits, and a second one would forget it.
    """
    path = with_query(f"/jobs/{number}", even_active="true" if even_active else None)
    yield from done(Request("DELETE", path, "jobs", repeatable=False))


def job_queues() -> Operation[list[Document]]:
    """Return the queues of jobs."""
    found: list[Document] = (yield from requested(Request("GET", "/job-queues", "jobs")))["queues"]
    return found


def put_job_queue(name: str, **settings: Any) -> Operation[Document]:
    """Make a queue, or change it: `patterns`, `type`, `max_parallel`, `max_retries` and so on."""
    path = f"/job-queues/{segment(name)}"
    return (yield from requested(Request("PUT", path, "jobs", body=settings)))


def job_topics() -> Operation[list[Document]]:
    """Return the topics of jobs: what waits, and which of them no instance has a consumer for."""
    found: list[Document] = (yield from requested(Request("GET", "/job-topics", "jobs")))["topics"]
    return found


def schedules(*, limit: int = 1_000) -> Operation[list[Document]]:
    """Return the schedules: when they are due, and what they give then."""
    return (yield from listed("/schedules", "schedules", limit, _PAGE, "jobs"))


def put_schedule(name: str, topic: str, **settings: Any) -> Operation[Document]:
    """Make a schedule, or change it: `cron` and `time_zone`, `period_s` or `at`, `properties`."""
    path = f"/schedules/{segment(name)}"
    return (yield from requested(Request("PUT", path, "jobs", body={"topic": topic, **settings})))


def remove_schedule(name: str) -> Operation[None]:
    """Remove a schedule."""
    yield from done(Request("DELETE", f"/schedules/{segment(name)}", "jobs"))


def suspend(kind: str, name: str) -> Operation[Document]:
    """Let a queue (`kind` "job-queues") or a schedule ("schedules") stand still."""
    return (yield from requested(_post(f"/{kind}/{segment(name)}/suspend")))


def resume_suspended(kind: str, name: str) -> Operation[Document]:
    """Let a queue ("job-queues") or a schedule ("schedules") that was suspended go on."""
    return (yield from requested(_post(f"/{kind}/{segment(name)}/resume")))


def send_event(
    topic: str, properties: Mapping[str, Any] | None = None, *, key: str | None = None
) -> Operation[None]:
    """Send an event to the handlers of every instance, and to who follows the events.

    Every try has the same idempotency key. Raises `NoAnswer` with it when nobody knows whether the
    event was sent.
    """
    body = {"topic": topic, **given(properties=properties)}
    headers = {"Idempotency-Key": checked_key(key)}
    sent = Request("POST", "/events", "jobs", body=body, headers=headers, repeatable=True)
    yield from answered_by_key(sent, "sent")


def _post(path: str) -> Request:
    return Request("POST", path, "jobs", body={}, repeatable=True)
