"""Schedules over HTTP."""

from typing import Any

import psycopg
import pytest

from tests.harness.jobs.asking import ask
from tests.harness.jobs.site import JobsSite

NIGHTLY = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "topic": "images/tidy"}


def put(site: JobsSite, name: str = "nightly", **more: Any) -> Any:
    return ask(site, "PUT", f"/schedules/{name}", json={**NIGHTLY, **more})


def test_a_schedule_is_made_shown_changed_and_removed(site: JobsSite) -> None:
    made = put(site, properties={"keep": 3}, run_on="LEADER", missed="ALL", missed_limit=2)
    assert made.status_code == 201, made.text
    document = made.json()
    assert document["origin"] == "operator"
    assert document["next_fire_time"] is not None
    assert (document["properties"], document["run_on"]) == ({"keep": 3}, "LEADER")
    assert ask(site, "GET", "/schedules/nightly", "viewer").json() == document
    changed = put(site, description="each night")
    assert (changed.status_code, changed.json()["changed"]) == (200, True)
    assert changed.json()["next_fire_time"] == document["next_fire_time"], (
        "nothing about time has changed"
    )
    assert ask(site, "DELETE", "/schedules/nightly").status_code == 204
    assert ask(site, "GET", "/schedules/nightly").status_code == 404


def test_only_what_was_seen_is_changed(site: JobsSite) -> None:
    first = ask(site, "PUT", "/schedules/nightly", json=NIGHTLY, headers={"If-None-Match": "*"})
    seen = {"If-Match": first.headers["etag"]}
    again = ask(site, "PUT", "/schedules/nightly", json=NIGHTLY, headers={"If-None-Match": "*"})
    assert again.status_code == 412
    suspended = ask(site, "POST", "/schedules/nightly/suspend", headers=seen)
    assert (suspended.status_code, suspended.json()["suspended"]) == (200, True)
    for method, path in (
        ("PUT", "/schedules/nightly"),
        ("POST", "/schedules/nightly/resume"),
        ("DELETE", "/schedules/nightly"),
    ):
        body = {"json": NIGHTLY} if method == "PUT" else {}
        assert ask(site, method, path, headers=seen, **body).status_code == 412, method
    now = {"If-Match": suspended.headers["etag"]}
    assert ask(site, "POST", "/schedules/nightly/resume", headers=now).json()["suspended"] is False
    gone = ask(site, "PUT", "/schedules/other", json=NIGHTLY, headers=now)
    assert gone.status_code == 412


def test_firing_does_not_change_the_tag(site: JobsSite) -> None:
    tag = put(site).headers["etag"]
    with psycopg.connect(site.database_url) as connection:
        connection.execute("UPDATE jobs.schedule SET last_tick = now(), next_tick = now()")
    assert ask(site, "GET", "/schedules/nightly").headers["etag"] == tag


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ({"cron": "0 0 30 2 *"}, "no such day of the month"),
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "* * * * * *"}, "five fields"),
        ({"time_zone": "Europe/Atlantis"}, "time zone"),
        ({"cron": None}, "exactly one"),
        ({"period_s": 60}, "exactly one"),
        ({"cron": None, "time_zone": "UTC", "period_s": 0.5}, "greater than"),
        ({"cron": None, "time_zone": "UTC", "at": "2001-01-01T00:00:00Z"}, "has passed"),
        ({"cron": None, "time_zone": "UTC", "at": "2030-01-01T00:00:00"}, "time zone"),
        ({"topic": "a b"}, "no topic"),
        ({"properties": {"text": "x" * 65_536}}, "65536"),
        ({"action": "EVENT", "concurrent": False}, "concurrent"),
        ({"times": 0}, "greater than"),
        ({"missed": "NEVER"}, "SKIP"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    site: JobsSite, wrong: dict[str, Any], reported: str
) -> None:
    answer = put(site, **wrong)
    assert answer.status_code == 422, answer.text
    assert reported in answer.text
    assert ask(site, "GET", "/schedules").json() == {"schedules": [], "next": None}


def pages(site: JobsSite, path: str) -> list[Any]:
    found = []
    while path:
        answer = ask(site, "GET", path, "viewer")
        found.append(answer.json())
        path = found[-1]["next"]
        assert answer.links.get("next", {}).get("url") == path
    return found


def test_pages_of_schedules_and_of_their_moments(site: JobsSite) -> None:
    for n in range(4):
        put(site, f"s{n}").raise_for_status()
    found = pages(site, "/schedules?limit=2")
    names = [[one["name"] for one in page["schedules"]] for page in found]
    assert names == [["s0", "s1"], ["s2", "s3"]]
    with psycopg.connect(site.database_url) as connection:
        connection.execute(
            """
            INSERT INTO jobs.tick (schedule, tick, outcome, decided_at, instance, jobs, missed,
                reason)
            SELECT 's0', '2026-01-01Z'::timestamptz + n * interval '0.000001 s', 'FIRED', now(),
                'me', ARRAY[n], 0, '' FROM generate_series(1, 4) AS n
            """
        )
    found = pages(site, "/schedules/s0/fire-times?limit=2")
    jobs = [[number for one in page["fire_times"] for number in one["jobs"]] for page in found]
    assert jobs == [[4, 3], [2, 1]]
    assert ask(site, "GET", "/schedules/none/fire-times").status_code == 404


def test_a_viewer_changes_nothing(site: JobsSite) -> None:
    put(site).raise_for_status()
    assert ask(site, "PUT", "/schedules/nightly", "viewer", json=NIGHTLY).status_code == 403
    assert ask(site, "POST", "/schedules/nightly/suspend", "viewer").status_code == 403
    assert ask(site, "POST", "/schedules/nightly/fire", "viewer").status_code == 403
    assert ask(site, "DELETE", "/schedules/nightly", "viewer").status_code == 403


def test_a_schedule_is_fired_now(site: JobsSite) -> None:
    made = put(site, properties={"keep": 3}, suspended=True)
    assert ask(site, "POST", "/schedules/none/fire").status_code == 404
    stale = ask(site, "POST", "/schedules/nightly/fire", headers={"If-Match": '"none"'})
    assert stale.status_code == 412
    seen = {"If-Match": made.headers["etag"]}
    fired = ask(site, "POST", "/schedules/nightly/fire", headers=seen)
    assert fired.status_code == 200, fired.text
    fire_time = fired.json()
    assert (fire_time["outcome"], len(fire_time["jobs"])) == ("FIRED", 1)
    job = ask(site, "GET", f"/jobs/{fire_time['jobs'][0]}").json()
    assert (job["schedule"], job["properties"]) == ("nightly", {"keep": 3})
    assert ask(site, "GET", "/schedules/nightly/fire-times").json()["fire_times"] == [fire_time]
    after = ask(site, "GET", "/schedules/nightly")
    assert after.headers["etag"] == made.headers["etag"]
    assert after.json()["next_fire_time"] == made.json()["next_fire_time"]


def test_a_request_to_fire_that_is_sent_again_has_no_second_effect(site: JobsSite) -> None:
    put(site).raise_for_status()
    put(site, "other").raise_for_status()
    key = {"Idempotency-Key": "once"}
    first = ask(site, "POST", "/schedules/nightly/fire", headers=key)
    assert ask(site, "POST", "/schedules/nightly/fire", headers=key).json() == first.json()
    assert ask(site, "POST", "/schedules/other/fire", headers=key).status_code == 422
    assert site.count("QUEUED") == 1
    for forget in ("UPDATE jobs.tick SET tick = tick - interval '1 h'", "DELETE FROM jobs.tick"):
        with psycopg.connect(site.database_url) as connection:
            connection.execute(forget)
        assert ask(site, "POST", "/schedules/nightly/fire", headers=key).status_code == 410
