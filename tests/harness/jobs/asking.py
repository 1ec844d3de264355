"""Asking a jobs service, and emptying it between two tests: a new one takes seconds."""

from typing import Any

import httpx

from tests.harness.borrowing import borrowed
from tests.harness.jobs.site import JobsSite

_FULL = ("job", "finished", "topic", "statistics", "request_key", "schedule", "tick", "event")


def emptied(site: JobsSite) -> JobsSite:
    """Return it with nothing but the queue `main`, which is not suspended."""
    with borrowed(site.database_url) as connection:
        for table in _FULL:
            connection.execute(f"DELETE FROM jobs.{table}")
        connection.execute("DELETE FROM jobs.queue WHERE name <> 'main'")
        connection.execute("UPDATE jobs.queue SET suspended = false WHERE suspended")
    return site


def ask(
    site: JobsSite, method: str, path: str, token: str = "operator", **more: Any
) -> httpx.Response:
    """Return the answer to a caller, by default to the operator."""
    headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
    return httpx.request(method, site.url + path, headers=headers, timeout=120, **more)


def add(site: JobsSite, topic: str = "images/thumbnail", **more: Any) -> dict[str, Any]:
    """Add a job and return the answer's document."""
    answer = ask(site, "POST", "/jobs", json={"topic": topic, **more})
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found
