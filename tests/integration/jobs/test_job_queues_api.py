"""Queues and topics of jobs over HTTP."""

from functools import partial
from typing import Any

import pytest

from packhorse.jobs.ledger import figures
from packhorse.jobs.ledger.figures import read_statistics
from packhorse.topology.discovery import Discovery
from tests.harness.jobs.asking import add, ask
from tests.harness.jobs.site import JobsSite
from tests.harness.topology.scripted import ME

IMAGES = {"patterns": ["images/**"], "type": "UNORDERED", "max_parallel": 4}


def queue(site: JobsSite, name: str = "images") -> dict[str, Any]:
    shown = ask(site, "GET", "/job-queues", "viewer").json()["queues"]
    found: dict[str, Any] = next(one for one in shown if one["name"] == name)
    return found


def test_a_queue_is_made_and_takes_what_waits(site: JobsSite) -> None:
    add(site)
    assert queue(site, "main")["statistics"]["queued"] == 1
    made = ask(site, "PUT", "/job-queues/images", "admin", json=IMAGES)
    assert made.status_code == 201, made.text
    assert made.json()["retry_delay_s"] == 2
    assert queue(site)["statistics"]["queued"] == 1
    assert queue(site, "main")["statistics"]["queued"] == 0
    changed = ask(site, "PUT", "/job-queues/images", "admin", json={**IMAGES, "max_retries": 3})
    assert (changed.status_code, changed.json()["max_retries"]) == (200, 3)
    assert ask(site, "DELETE", "/job-queues/images", "admin").status_code == 204
    assert queue(site, "main")["statistics"]["queued"] == 1


def test_only_what_was_seen_is_changed(site: JobsSite) -> None:
    path = "/job-queues/images"
    first = ask(site, "PUT", path, "admin", json=IMAGES, headers={"If-None-Match": "*"})
    seen = {"If-Match": first.headers["etag"]}
    again = ask(site, "PUT", path, "admin", json=IMAGES, headers={"If-None-Match": "*"})
    assert again.status_code == 412
    tag = ask(site, "PUT", path, "admin", json=IMAGES, headers={"If-None-Match": '"x"'})
    assert (tag.status_code, "as * only" in tag.text) == (400, True)
    ask(site, "POST", f"{path}/suspend", headers=seen).raise_for_status()
    for method, where in (("PUT", path), ("DELETE", path), ("POST", f"{path}/resume")):
        body = {"json": IMAGES} if method == "PUT" else {}
        refused = ask(site, method, where, "admin", headers=seen, **body)
        assert refused.status_code == 412, (method, refused.text)
    assert queue(site)["suspended"], "a change of the rules does not resume it"
    now = ask(site, "GET", path).headers["etag"]
    resumed = ask(site, "POST", f"{path}/resume", headers={"If-Match": now})
    assert (resumed.status_code, resumed.json()["suspended"]) == (200, False)


def test_what_was_made_anew_is_not_what_was_seen(site: JobsSite) -> None:
    path = "/job-queues/images"
    seen = {"If-Match": ask(site, "PUT", path, "admin", json=IMAGES).headers["etag"]}
    ask(site, "DELETE", path, "admin").raise_for_status()
    assert ask(site, "PUT", path, "admin", json=IMAGES, headers=seen).status_code == 412
    ask(site, "PUT", path, "admin", json=IMAGES).raise_for_status()
    assert ask(site, "DELETE", path, "admin", headers=seen).status_code == 412


@pytest.mark.parametrize(
    "wrong",
    [
        {"patterns": []},
        {"patterns": ["a b"]},
        {"patterns": ["**/a"]},
        {"type": "SORTED"},
        {"max_parallel": 0},
        {"max_parallel": -2},
        {"timeout_s": 0},
        {"retry_delay_s": -1},
        {"ranking": 2**31},
        {"suspended": True},
    ],
)
def test_a_queue_that_makes_no_sense_is_refused(site: JobsSite, wrong: dict[str, Any]) -> None:
    answer = ask(site, "PUT", "/job-queues/images", "admin", json={**IMAGES, **wrong})
    assert answer.status_code == 422, answer.text
    assert ask(site, "GET", "/job-queues/images").status_code == 404


def test_the_main_queue_stays(site: JobsSite) -> None:
    assert ask(site, "DELETE", "/job-queues/main", "admin").status_code == 422
    narrow = ask(site, "PUT", "/job-queues/main", "admin", json=IMAGES)
    assert narrow.status_code == 422, narrow.text
    assert ask(site, "GET", "/job-queues/main").json()["patterns"] == ["**"]


@pytest.mark.parametrize("path", ["/job-queues/none", "/job-queues/none/suspend"])
def test_a_queue_that_is_not_there(site: JobsSite, path: str) -> None:
    method = "POST" if path.endswith("suspend") else "GET"
    answer = ask(site, method, path)
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-queue")


def test_an_operator_suspends_but_does_not_make_queues(site: JobsSite) -> None:
    assert ask(site, "PUT", "/job-queues/images", json=IMAGES).status_code == 403
    assert ask(site, "DELETE", "/job-queues/main").status_code == 403
    assert ask(site, "POST", "/job-queues/main/suspend", "viewer").status_code == 403
    assert ask(site, "POST", "/job-queues/main/suspend").json()["suspended"] is True
    assert ask(site, "POST", "/job-queues/main/suspend").status_code == 200, "once more"
    assert ask(site, "POST", "/job-queues/main/resume").json()["suspended"] is False


def test_topics_without_a_consumer_are_named(site: JobsSite) -> None:
    add(site, "images/thumbnail")
    waiting = add(site, "mail/newsletter")["job"]
    document = ask(site, "GET", "/job-topics", "viewer").json()
    assert document["current"] is True
    since = {one["topic"]: one["unconsumed_since"] for one in document["topics"]}
    assert since == {"images/thumbnail": None, "mail/newsletter": waiting["ready_at"]}
    queued = {one["topic"]: one["statistics"]["queued"] for one in document["topics"]}
    assert queued == {"images/thumbnail": 1, "mail/newsletter": 1}


def test_who_consumes_may_be_unknown(site: JobsSite, monkeypatch: pytest.MonkeyPatch) -> None:
    add(site)
    monkeypatch.setattr(Discovery, "current_view", lambda _: None)
    document = ask(site, "GET", "/job-topics", "viewer").json()
    assert document["current"] is False
    assert [one["unconsumed_since"] for one in document["topics"]] == [None]


def test_counting_that_stopped_says_so(site: JobsSite, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in ("images/scale", "images/scale", "images/thumbnail"):
        add(site, topic)
    monkeypatch.setattr(figures, "read_statistics", partial(read_statistics, most=2))
    topics = ask(site, "GET", "/job-topics", "viewer").json()["topics"]
    more = {one["topic"]: one["statistics"]["has_more"] for one in topics}
    assert more == {"images/scale": True, "images/thumbnail": False}
    document = ask(site, "GET", "/job-queues", "viewer").json()
    assert document["all"]["has_more"] is True


def test_jobs_that_wait_for_one_instance_are_named(site: JobsSite) -> None:
    own = add(site, "images/thumbnail", only_on=ME)["job"]
    away = add(site, "images/thumbnail", only_on="worker-2")["job"]
    add(site, "images/thumbnail", only_on="@leader")  # whoever does them leads
    [topic] = ask(site, "GET", "/job-topics", "viewer").json()["topics"]
    assert topic["unconsumed_since"] is None
    assert topic["unconsumed_on"] == [
        {"only_on": "worker-2", "waiting": 1, "since": away["ready_at"]},
    ]
    assert own["only_on"] == ME
