"""Who changed jobs, queues and schedules is a row of the audit, in the same transaction."""

import logging

import pytest

from packhorse.runtime import audit
from tests.harness.jobs.asking import add, ask
from tests.harness.jobs.site import JobsSite
from tests.harness.waiting import eventually

HOURLY = {"cron": "0 * * * *", "topic": "a/b"}


def done(site: JobsSite) -> list[tuple[str, str]]:
    acts = ask(site, "GET", "/acts", "admin").json()["acts"]
    return [(one["operation"], one["object"]) for one in reversed(acts)]


def test_each_change_has_a_row_and_nothing_else_has_one(site: JobsSite) -> None:
    before = len(done(site))
    number = add(site)["job"]["number"]
    ask(site, "POST", "/events", json={"topic": "images/seen"})
    ask(site, "POST", f"/jobs/{number}/stop")
    ask(site, "POST", f"/jobs/{number}/stop")  # it is over: refused
    ask(site, "POST", f"/jobs/{number}/retry", "viewer")
    ask(site, "GET", f"/jobs/{number}")
    ask(site, "PUT", "/schedules/hourly", json=HOURLY)
    ask(site, "POST", "/schedules/hourly/fire")
    ask(site, "POST", "/job-queues/main/suspend")
    ask(site, "POST", "/job-queues/main/resume")
    ask(site, "POST", "/jobs/retry", json={"dry_run": True})
    ask(site, "POST", "/jobs/retry", json={"topic": "images/**"})
    ask(site, "DELETE", "/content-watches/none", "admin")
    assert done(site)[before:] == [
        ("stopJob", f"/jobs/{number}/stop"),
        ("putSchedule", "/schedules/hourly"),
        ("fireSchedule", "/schedules/hourly/fire"),
        ("suspendQueue", "/job-queues/main/suspend"),
        ("resumeQueue", "/job-queues/main/resume"),
        ("retryJobs", "/jobs/retry"),
    ]
    newest = ask(site, "GET", "/acts?limit=1", "admin").json()["acts"][0]
    assert (newest["caller"], newest["address"]) == ("operator", "127.0.0.1")
    assert newest["about"]["topic"] == "images/**"
    assert ask(site, "GET", "/acts").status_code == 403


def test_the_log_says_how_many_jobs_were_changed(
    site: JobsSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    for n in range(2):
        add(site, properties={"n": n})
    ask(site, "POST", "/jobs/stop", json={})

    def changed() -> list[int]:
        lines = [vars(one) for one in caplog.records]
        return [one["changed"] for one in lines if one.get("operation") == "stopJobs"]

    eventually(lambda: changed() == [2], what="the line, behind the answer")
