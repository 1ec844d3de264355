"""Who may operate jobs gives and changes none of the product's own jobs and events, in no way."""

import logging
from typing import Any

import httpx
import pytest

from packhorse.jobs.scheduling.definition import EventAction, JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.store import create_schedule
from packhorse.jobs.scheduling.timing import Cron
from packhorse.runtime import audit
from tests.harness.jobs.asking import add, ask, emptied
from tests.harness.jobs.site import JobsSite
from tests.harness.waiting import eventually

CLEANUP = {"cron": "0 3 * * *", "topic": "packhorse/cleanup/run", "properties": {"keep": 1}}
PRODUCT_TOPICS = [
    "packhorse/cleanup/run",
    "packhorse/hooks/cdn",
    "packhorse/jobs/prune-history",
    "packhorse/pipeline/archive",
    "packhorse/publisher/main/tidy",
    "packhorse/releases/main",
]
EVENT = {"period_s": 60, "action": "EVENT", "topic": "packhorse/job/FINISHED"}


@pytest.fixture
def site(running: JobsSite) -> JobsSite:
    site = emptied(running)
    action = JobAction("packhorse/cleanup/run", {"keep": 1})
    declared = ScheduleDefinition("packhorse.cleanup", Cron("0 3 * * *", "UTC"), action)
    with site.bookkeeper() as connection:
        create_schedule(connection, declared, origin="@declared")
    return site


def audited(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str, str]]:
    reported = [vars(record) for record in caplog.records if record.name == audit.LOGGER]
    return [
        (one["caller"], one["operation"], one["object"], str(one["outcome"])) for one in reported
    ]


def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 403, answer.text
    assert "the product's own" in answer.json()["detail"]


@pytest.mark.parametrize("topic", ["packhorse/cleanup/run", "packhorse/jobs/prune-history"])
def test_a_job_of_the_products_is_for_an_admin(site: JobsSite, topic: str) -> None:
    job = {"topic": topic, "properties": {"max_age_s": 0}}
    refused(ask(site, "POST", "/jobs", json=job))
    assert site.count("QUEUED") == 0
    assert ask(site, "POST", "/jobs", "admin", json=job).status_code == 201


def given(site: JobsSite, number: int, topic: str, act: str) -> int:
    """Put a job there in the state in which it may be acted on; return its number."""
    if act.endswith("retry"):
        return site.finished(number, topic=topic)
    made = ask(site, "POST", "/jobs", "admin", json={"topic": topic})
    return int(made.json()["job"]["number"])


@pytest.mark.parametrize("topic", PRODUCT_TOPICS)
@pytest.mark.parametrize(("method", "act"), [("POST", "/stop"), ("POST", "/retry"), ("DELETE", "")])
def test_such_a_job_is_changed_by_an_admin(
    site: JobsSite, topic: str, method: str, act: str
) -> None:
    number = given(site, 1, topic, act)
    before = ask(site, "GET", f"/jobs/{number}").json()
    refused(ask(site, method, f"/jobs/{number}{act}"))
    if method == "DELETE":
        refused(ask(site, method, f"/jobs/{number}?even_active=true"))
    assert ask(site, "GET", f"/jobs/{number}").json() == before
    assert ask(site, method, f"/jobs/{number}{act}", "admin").is_success


@pytest.mark.parametrize("act", ["stop", "retry", "remove"])
def test_many_jobs_are_changed_without_them(site: JobsSite, act: str) -> None:
    for number, topic in enumerate(PRODUCT_TOPICS, start=1):
        given(site, number, topic, act)
        refused(ask(site, "POST", f"/jobs/{act}", json={"topic": topic}))
        refused(ask(site, "POST", f"/jobs/{act}", json={"topic": topic, "dry_run": True}))
    refused(ask(site, "POST", f"/jobs/{act}", json={"topic": "packhorse/**"}))
    if act == "retry":
        site.finished(100, topic="packhorses")
    else:
        add(site, "packhorses")
    assert ask(site, "POST", f"/jobs/{act}", json={"dry_run": True}).json()["matching"] == 1
    assert ask(site, "POST", f"/jobs/{act}", json={}).json()["changed"] == 1
    of_all = ask(site, "POST", f"/jobs/{act}", "admin", json={"topic": "packhorse/**"})
    assert of_all.json()["changed"] == len(PRODUCT_TOPICS)


def test_a_schedule_does_not_give_them_either(site: JobsSite) -> None:
    refused(ask(site, "PUT", "/schedules/mine", json=CLEANUP))
    assert ask(site, "GET", "/schedules/mine").status_code == 404
    for caller in ("operator", "admin"):
        answer = ask(site, "PUT", "/schedules/spoof", caller, json=EVENT)
        assert answer.status_code == 422, "nobody sends such an event over HTTP"
    refused(ask(site, "POST", "/schedules/packhorse.cleanup/fire"))
    assert ask(site, "GET", "/schedules/packhorse.cleanup/fire-times").json()["fire_times"] == []
    assert site.count("QUEUED") == 0
    assert ask(site, "PUT", "/schedules/mine", "admin", json=CLEANUP).status_code == 201
    fired = ask(site, "POST", "/schedules/packhorse.cleanup/fire", "admin")
    assert (fired.status_code, fired.json()["outcome"]) == (200, "FIRED")


@pytest.mark.parametrize(
    "change",
    [{"properties": {"keep": 0}}, {"topic": "images/tidy"}, {"run_on": "ALL"}, {"priority": 100}],
)
def test_what_a_schedule_of_the_products_does_is_changed_by_an_admin(
    site: JobsSite, change: dict[str, Any]
) -> None:
    path = "/schedules/packhorse.cleanup"
    refused(ask(site, "PATCH", path, json=change))
    refused(ask(site, "PUT", path, json={**CLEANUP, **change}))
    assert ask(site, "PATCH", path, "admin", json=change).status_code == 200


def test_such_a_schedule_is_removed_and_its_name_given_by_an_admin(site: JobsSite) -> None:
    path = "/schedules/packhorse.cleanup"
    refused(ask(site, "DELETE", path))
    assert ask(site, "PATCH", path, "admin", json={"topic": "images/tidy"}).status_code == 200
    refused(ask(site, "DELETE", path))
    assert ask(site, "DELETE", path, "admin").status_code == 204
    refused(ask(site, "PUT", path, json={"period_s": 60, "topic": "images/tidy"}))
    assert ask(site, "GET", path).status_code == 404
    assert ask(site, "PUT", path, "admin", json=CLEANUP).status_code == 201


def test_when_it_does_it_stays_with_operators_and_is_audited(
    site: JobsSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    path = "/schedules/packhorse.cleanup"
    later = ask(site, "PATCH", path, json={"cron": "0 5 * * *"})
    assert (later.status_code, later.json()["cron"]) == (200, "0 5 * * *")
    assert ask(site, "PUT", path, json={**CLEANUP, "missed": "SKIP"}).status_code == 200
    assert ask(site, "POST", f"{path}/suspend").json()["suspended"] is True
    entry = ("operator", "suspendSchedule", f"{path}/suspend", "DONE")
    eventually(lambda: audited(caplog)[-1:] == [entry], what="the entry, behind the answer")
    assert ask(site, "POST", f"{path}/resume").json()["suspended"] is False


def test_an_event_that_a_schedule_of_before_sends_is_not_fired_by_an_operator(
    site: JobsSite,
) -> None:
    spoof = ScheduleDefinition("spoof", Cron("0 3 * * *", "UTC"), EventAction(str(EVENT["topic"])))
    with site.bookkeeper() as connection:
        create_schedule(connection, spoof, origin="operator")
    refused(ask(site, "POST", "/schedules/spoof/fire"))
