"""Content watches over HTTP."""

from typing import Any

import pytest

from tests.harness.jobs.asking import ask
from tests.harness.jobs.site import JobsSite

WATCH = {"roots": ["/site/images"], "job_topic": "images/thumbnail"}


def test_a_watch_is_made_changed_listed_and_removed(site: JobsSite) -> None:
    path = "/content-watches/thumbnails"
    made = ask(site, "PUT", path, "admin", json=WATCH)
    assert (made.status_code, made.json()) == (201, {"name": "thumbnails", **WATCH, "types": []})
    changed = ask(site, "PUT", path, "admin", json={"roots": ["/"]})
    assert changed.status_code == 200
    assert changed.json() == {
        "name": "thumbnails",
        "roots": ["/"],
        "job_topic": None,
        "types": [],
    }
    shown = ask(site, "GET", "/content-watches", "viewer").json()
    assert shown == {"watches": [changed.json()]}
    assert ask(site, "DELETE", path, "admin").status_code == 204
    assert ask(site, "DELETE", path, "admin").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"roots": []},
        {"roots": ["site"]},
        {"roots": ["/a/../b"]},
        {"roots": ["/"], "job_topic": "no topic"},
        {"roots": ["/"], "more": 1},
    ],
)
def test_what_can_not_be_watched_is_refused(site: JobsSite, body: dict[str, Any]) -> None:
    refused = ask(site, "PUT", "/content-watches/w", "admin", json=body)
    assert refused.status_code == 422, refused.text


def test_only_an_admin_changes_watches(site: JobsSite) -> None:
    for method in ("PUT", "DELETE"):
        body = {"json": WATCH} if method == "PUT" else {}
        refused = ask(site, method, "/content-watches/w", "viewer", **body)
        assert refused.status_code == 403, refused.text
