"""Jobs over HTTP: adding, listing, looking, changing one and many."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from packhorse_services.jobs.http import request_keys
from tests.harness.jobs.asking import add, ask
from tests.harness.jobs.site import JobsSite
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_job_is_added_and_found_at_its_location(site: JobsSite) -> None:
    answer = ask(
        site,
        "POST",
        "/jobs",
        json={"topic": "images/thumbnail", "properties": {"size": 3}, "priority": 7},
        headers={"traceparent": TRACE},
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["verdict"] == "ADDED"
    found = ask(site, "GET", answer.headers["location"], "viewer").json()
    assert found == answer.json()["job"]
    assert (found["state"], found["properties"], found["priority"]) == ("QUEUED", {"size": 3}, 7)
    assert found["traceparent"].split("-")[1] == TRACE.split("-")[1], "the trace of who gave it"


def test_the_same_key_adds_once_however_many_ask_at_once(site: JobsSite) -> None:
    def send(_: int) -> httpx.Response:
        return ask(site, "POST", "/jobs", json={"topic": "a/b"}, headers={"Idempotency-Key": "one"})

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(16)))
    assert sorted(one.status_code for one in answers) == [200] * 15 + [201]
    assert len({one.json()["job"]["number"] for one in answers}) == 1
    assert site.count("QUEUED") == 1


@pytest.mark.proof
def test_a_key_that_is_not_looked_up_would_be_noticed(
    site: JobsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checker that can't fail is none."""
    monkeypatch.setattr(request_keys, "take", lambda _connection, _key: None)
    for _ in range(2):
        headers = {"Idempotency-Key": "one"}
        ask(site, "POST", "/jobs", json={"topic": "a/b"}, headers=headers).raise_for_status()
    assert site.count("QUEUED") == 2


def test_a_key_belongs_to_its_caller_and_its_request(site: JobsSite) -> None:
    headers = {"Idempotency-Key": "one"}
    ask(site, "POST", "/jobs", json={"topic": "a/b"}, headers=headers).raise_for_status()
    other = ask(site, "POST", "/jobs", json={"topic": "a/c"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    admin = ask(site, "POST", "/jobs", "admin", json={"topic": "a/b"}, headers=headers)
    assert admin.status_code == 201


def test_a_key_with_a_space_is_refused(site: JobsSite) -> None:
    headers = {"Idempotency-Key": "one two"}
    assert ask(site, "POST", "/jobs", json={"topic": "a/b"}, headers=headers).status_code == 422


def test_a_key_whose_job_is_forgotten_adds_no_second_one(site: JobsSite) -> None:
    headers = {"Idempotency-Key": "one"}
    made = ask(site, "POST", "/jobs", json={"topic": "a/b"}, headers=headers).json()
    with psycopg.connect(site.database_url) as connection:
        connection.execute("DELETE FROM jobs.job")
    again = ask(site, "POST", "/jobs", json={"topic": "a/b"}, headers=headers)
    assert again.status_code == 410
    assert str(made["job"]["number"]) in again.json()["detail"]
    assert site.count("QUEUED") == 0


def test_a_refused_job_leaves_no_key(site: JobsSite) -> None:
    headers = {"Idempotency-Key": "one"}
    wrong = ask(site, "POST", "/jobs", json={"topic": "no topic"}, headers=headers)
    assert wrong.status_code == 422
    assert ask(site, "POST", "/jobs", json={"topic": "a"}, headers=headers).status_code == 201


def test_a_topic_and_an_id_are_one_job(site: JobsSite) -> None:
    first = add(site, id="one", properties={"n": 1}, application="shop")
    nobody = add(site, id="one", properties={"n": 2})
    assert (nobody["verdict"], nobody["job"]["properties"]) == ("EXISTING", {"n": 1})
    again = add(site, id="one", properties={"n": 3}, application="shop")
    assert (again["verdict"], again["job"]["properties"]) == ("UPDATED", {"n": 3})
    assert again["job"]["number"] == first["job"]["number"]


def test_a_job_that_has_not_changed_is_not_sent_again(site: JobsSite) -> None:
    number = add(site)["job"]["number"]
    first = ask(site, "GET", f"/jobs/{number}")
    tag = {"If-None-Match": first.headers["etag"]}
    assert ask(site, "GET", f"/jobs/{number}", headers=tag).status_code == 304
    ask(site, "POST", f"/jobs/{number}/stop").raise_for_status()
    assert ask(site, "GET", f"/jobs/{number}", headers=tag).status_code == 200


def test_pages_are_followed_to_the_end_with_the_filter(site: JobsSite) -> None:
    wanted = [add(site, properties={"size": n})["job"]["number"] for n in range(7)]
    add(site, topic="other")
    wanted += [site.finished(10_000 - n) for n in range(4)]
    path, found = "/jobs?topic=images/**&limit=3", []
    while path:
        answer = ask(site, "GET", path, "viewer")
        page = answer.raise_for_status().json()
        assert len(page["jobs"]) <= 3
        found += [job["number"] for job in page["jobs"]]
        assert (page["next"] is None) == ("link" not in answer.headers)
        path = page["next"]
    assert sorted(found) == sorted(wanted)
    assert found[:7] == wanted[:7], "unfinished ones first, the oldest of them first"


@pytest.mark.parametrize(
    ("query", "sizes"),
    [
        ('template={">=size": 3}', [3, 4]),
        ('template={"<size": 1}&template={"=size": 4}', [0, 4]),
        ('template={">size": 1, "<=size": 3}', [2, 3]),
        ('template={"size": "3"}', []),
        ("state=HISTORY", []),
        ("id=id-2", [2]),
    ],
)
def test_jobs_are_found_by_their_properties(site: JobsSite, query: str, sizes: list[int]) -> None:
    for n in range(5):
        add(site, properties={"size": n}, id=f"id-{n}")
    found = ask(site, "GET", f"/jobs?{query}").raise_for_status().json()["jobs"]
    assert [int(job["id"].removeprefix("id-")) for job in found] == sizes


@pytest.mark.parametrize(
    "query",
    [
        "state=SLEEPING",
        'template={"!size": 3}',
        'template={"size": [1]}',
        "template=size",
        "template=[]",
        'template={"a": "\\u0000"}',
        "topic=a//b",
        "topic=**/a",
        "cursor=nowhere",
        "limit=0",
        "limit=1000",
        "sort=number",
    ],
)
def test_a_filter_that_is_none_is_refused(site: JobsSite, query: str) -> None:
    answer = ask(site, "GET", f"/jobs?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "a b"},
        {"topic": "a", "properties": {"text": "x" * 65_536}},
        {"topic": "a", "properties": []},
        {"topic": "a", "id": ""},
        {"topic": "a", "id": "line\nbreak"},
        {"topic": "a", "priority": 101},
        {"topic": "a", "ready_at": "2030-01-01T00:00:00"},
        {"topic": "a", "ready_at": 1},
        {"topic": "a", "ready_at": "2030-01-01T00:00:00Z", "delay_s": 1},
        {"topic": "a", "only_on": "@somebody"},
        {"topic": "a", "unknown": 1},
    ],
)
def test_what_is_no_job_is_refused(site: JobsSite, body: dict[str, Any]) -> None:
    answer = ask(site, "POST", "/jobs", json=body)
    assert answer.status_code == 422, answer.text
    assert site.count("QUEUED") == 0


def test_stop_retry_and_remove(site: JobsSite) -> None:
    number = add(site)["job"]["number"]
    stopped = ask(site, "POST", f"/jobs/{number}/stop")
    assert (stopped.status_code, stopped.json()["state"]) == (202, "STOPPED")
    assert ask(site, "POST", f"/jobs/{number}/stop").json()["type"] == "/problems/wrong-state"
    retried = ask(site, "POST", f"/jobs/{number}/retry")
    assert (retried.status_code, retried.json()["state"]) == (202, "QUEUED")
    assert ask(site, "DELETE", f"/jobs/{number}").status_code == 204
    assert ask(site, "GET", f"/jobs/{number}").json()["state"] == "DROPPED"
    assert ask(site, "DELETE", f"/jobs/{number}").status_code == 204
    assert ask(site, "GET", f"/jobs/{number}").status_code == 404
    assert ask(site, "POST", f"/jobs/{number}/retry").status_code == 404


def test_who_has_seen_another_state_changes_nothing(site: JobsSite) -> None:
    number = add(site, id="one", application="shop")["job"]["number"]
    seen = {"If-Match": ask(site, "GET", f"/jobs/{number}").headers["etag"]}
    add(site, id="one", application="shop", properties={"n": 1})
    refused = ask(site, "POST", f"/jobs/{number}/stop", headers=seen)
    assert refused.status_code == 412
    assert ask(site, "GET", f"/jobs/{number}").json()["state"] == "QUEUED"
    now = {"If-Match": ask(site, "GET", f"/jobs/{number}").headers["etag"]}
    assert ask(site, "POST", f"/jobs/{number}/stop", headers=now).status_code == 202


def test_what_changes_while_it_is_asked_for_is_not_what_was_seen(site: JobsSite) -> None:
    number = add(site)["job"]["number"]
    seen = {"If-Match": ask(site, "GET", f"/jobs/{number}").headers["etag"]}
    with ThreadPoolExecutor(1) as thread:
        with site.bookkeeper() as another:
            another.execute("UPDATE jobs.job SET priority = 9 WHERE number = %s", (number,))
            asked = thread.submit(ask, site, "POST", f"/jobs/{number}/stop", headers=seen)
            eventually(lambda: waiting_for_locks(site.database_url), "it waits for the change")
        assert asked.result().status_code == 412
    assert site.count("QUEUED") == 1


def test_an_active_job_is_asked_to_stop_and_taken_away_only_by_force(site: JobsSite) -> None:
    number = site.active(500_000)
    stopped = ask(site, "POST", f"/jobs/{number}/stop").json()
    assert (stopped["state"], stopped["stop_requested"]) == ("ACTIVE", True)
    assert ask(site, "DELETE", f"/jobs/{number}").status_code == 409
    assert ask(site, "DELETE", f"/jobs/{number}?even_active=true").status_code == 204
    assert ask(site, "GET", f"/jobs/{number}").json()["state"] == "DROPPED"


def test_many_are_counted_then_changed_in_bounded_steps(site: JobsSite) -> None:
    for n in range(8):
        add(site, properties={"n": n})
    body = {"topic": "images/*", "templates": [{">=n": 3}], "limit": 3}
    counted = ask(site, "POST", "/jobs/stop", json={**body, "limit": 100, "dry_run": True})
    assert counted.json() == {"matching": 5, "changed": 0, "passed_over": 0, "next": None}
    changed, after = [], None
    for _ in range(5):
        done = ask(site, "POST", "/jobs/stop", json={**body, "after": after}).json()
        changed.append(done["changed"])
        after = done["next"]
        if after is None:
            break
    assert sum(changed) == 5
    assert max(changed) == 3
    assert (site.count("STOPPED"), site.count("QUEUED")) == (5, 3)
    retried = ask(site, "POST", "/jobs/retry", json={"state": "STOPPED"}).json()
    assert retried["changed"] == 5
    removed = ask(site, "POST", "/jobs/remove", json={"templates": [{"n": 0}, {"n": 1}]}).json()
    assert (removed["changed"], site.count("DROPPED")) == (2, 2)


@pytest.mark.parametrize("verb", ["stop", "retry", "remove"])
def test_a_bulk_request_that_says_nonsense_changes_nothing(site: JobsSite, verb: str) -> None:
    add(site)
    for body in ({"state": "ASLEEP"}, {"templates": [{"~a": 1}]}, {"limit": 0}, {"after": "x"}):
        answer = ask(site, "POST", f"/jobs/{verb}", json=body)
        assert answer.status_code == 422, answer.text
    assert site.count("QUEUED") == 1


def test_a_viewer_changes_nothing(site: JobsSite) -> None:
    number = add(site)["job"]["number"]
    for method, path in (("POST", "/jobs"), ("DELETE", f"/jobs/{number}"), ("POST", "/jobs/stop")):
        assert ask(site, method, path, "viewer", json={}).status_code == 403
