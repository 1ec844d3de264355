"""What an operator does with the pages of jobs over HTTP; and what others may not."""

import re

import pytest

from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.store import create_schedule, get_schedule
from packhorse.jobs.scheduling.timing import Cron
from tests.harness.console import ConsoleSite, address, row, section
from tests.harness.jobs.site import JobsSite

SUSPENDED = '<span class="badge">suspended</span>'


def test_a_job_that_runs_is_asked_to_stop(site: JobsSite, console: ConsoleSite) -> None:
    site.active(1001)
    shown = console.press(console.get("jobs/1001").text, "jobs/1001/stop")
    assert '<span class="badge">stopping</span>' in shown.text
    assert site.jobs.get(1001).stop_requested


def test_what_the_state_does_not_allow_is_reported(site: JobsSite, console: ConsoleSite) -> None:
    site.active(1001)
    refused = console.post("jobs/1001/retry")
    assert refused.status_code == 409
    assert "<h1>Not done</h1>" in refused.text
    gone = console.post("jobs/4711/stop")
    assert (gone.status_code, "4711" in gone.text) == (404, True)


def test_a_job_of_the_products_is_changed_by_an_admin(site: JobsSite, console: ConsoleSite) -> None:
    site.active(1001, topic="packhorse/hooks/cdn")
    button = 'action="/pages/jobs/1001/stop"'
    assert button not in console.get("jobs/1001").text
    assert console.post("jobs/1001/stop").status_code == 403
    assert button in console.get("jobs/1001", "admin").text


def test_a_schedule_of_the_products_is_fired_by_an_admin(
    site: JobsSite, console: ConsoleSite
) -> None:
    yearly = ScheduleDefinition("yearly", Cron("0 0 1 1 *"), JobAction("packhorse/cleanup/run"))
    with site.bookkeeper() as connection:
        create_schedule(connection, yearly, origin="test")
    button = 'action="/pages/schedules/yearly/fire"'
    assert button not in console.get("schedule?name=yearly").text
    assert console.post("schedules/yearly/fire").status_code == 403
    assert button in console.get("schedule?name=yearly", "admin").text


def test_a_queue_is_suspended_and_resumed(site: JobsSite, console: ConsoleSite) -> None:
    shown = console.press(console.get("jobs?state=QUEUED").text, "job-queues/main/suspend")
    assert SUSPENDED in row(shown.text, 'data-queue="main"')
    assert site.jobs.queue("main").suspended
    assert "state=QUEUED" in str(shown.url), "what was looked for stays"
    shown = console.press(shown.text, "job-queues/main/resume")
    assert "badge" not in row(shown.text, 'data-queue="main"')
    assert not site.jobs.queue("main").suspended


def test_a_schedule_is_suspended_and_resumed(site: JobsSite, console: ConsoleSite) -> None:
    hourly = ScheduleDefinition("hourly", Cron("0 * * * *"), JobAction("a/b"))
    with site.bookkeeper() as connection:
        create_schedule(connection, hourly, origin="test")
    shown = console.press(console.get("schedules").text, "schedules/hourly/suspend").text
    assert SUSPENDED in row(shown, 'data-schedule="hourly"')
    assert "<time" not in row(shown, 'data-schedule="hourly"')
    with site.bookkeeper() as connection:
        assert get_schedule(connection, "hourly").definition.suspended
    shown = console.press(shown, "schedules/hourly/resume").text
    assert row(shown, 'data-schedule="hourly"').count("<time") == 1


def test_a_schedule_is_fired_now(site: JobsSite, console: ConsoleSite) -> None:
    yearly = ScheduleDefinition("yearly", Cron("0 0 1 1 *"), JobAction("a/b"), suspended=True)
    with site.bookkeeper() as connection:
        create_schedule(connection, yearly, origin="test")
    page = console.get("schedule?name=yearly").text
    shown = console.press(page, "schedules/yearly/fire").text
    came = section(shown, "What came of it")
    assert ">fired<" in came
    assert SUSPENDED in section(shown, "Schedule")
    assert site.count("QUEUED") == 1
    [number] = re.findall(r"/pages/jobs/(\d+)", came)
    assert "queued" in console.get(f"jobs/{number}").text
    console.press(page, "schedules/yearly/fire")
    assert site.count("QUEUED") == 1, "a form fires once"
    console.press(shown, "schedules/yearly/fire")
    assert site.count("QUEUED") == 2, "and another one again"


def test_all_that_a_filter_finds_is_retried_once_it_is_typed(
    site: JobsSite, console: ConsoleSite
) -> None:
    for number in range(1001, 1013):
        site.finished(number, "GIVEN_UP", properties={"size": number})
    site.finished(2001, "GIVEN_UP", topic="mail/send")
    found = console.get("jobs?state=GIVEN_UP&topic=images/**&where=size>=1003").text
    asked = console.get(address(found, "Retry all that is found…")).text
    assert "<b>10</b> jobs that the filter finds" in asked
    assert "<dd>images/**</dd>" in asked
    done = console.press(asked, "jobs/all/retry", typed="retry 10").text
    assert ">10 jobs are queued again.<" in done
    assert "data-job=" not in done
    assert (site.count("QUEUED"), site.count("GIVEN_UP")) == (10, 3)


def test_what_is_typed_wrong_changes_nothing(site: JobsSite, console: ConsoleSite) -> None:
    for number in range(3):
        site.jobs.add_job("images/thumbnail", id=str(number))
    asked = console.get(address(console.get("jobs").text, "Stop all that is found…")).text
    wrong = console.press(asked, "jobs/all/stop", typed="stop 2")
    assert wrong.status_code == 400
    assert 'role="alert">That was not the text to type.<' in wrong.text
    assert site.count("QUEUED") == 3
    done = console.press(wrong.text, "jobs/all/stop", typed="stop 3").text
    assert ">3 jobs are stopped" in done
    assert site.count("STOPPED") == 3


def test_no_more_is_changed_than_was_confirmed(site: JobsSite, console: ConsoleSite) -> None:
    for number in range(5):
        site.jobs.add_job("images/thumbnail", id=str(number))
    form = {"state": "QUEUED", "count": "2", "typed": "stop 2"}
    done = console.post("jobs/all/stop", **form)
    assert done.headers["location"].endswith("done=stop&count=2")
    assert (site.count("STOPPED"), site.count("QUEUED")) == (2, 3)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"count": "5"},
        {"count": "5", "typed": "retry 5"},
        {"count": "0", "typed": "stop 0"},
        {"count": "-5", "typed": "stop -5"},
        {"count": "99999", "typed": "stop 99999"},
        {"count": "²", "typed": "stop ²"},
        {"state": "LOST", "count": "1", "typed": "stop 1"},
        {"where": "a!b", "count": "1", "typed": "stop 1"},
        {"where": f"a{' ' * 60_000}b", "count": "1", "typed": "stop 1"},
    ],
)
def test_a_forged_form_changes_nothing(
    site: JobsSite, console: ConsoleSite, form: dict[str, str]
) -> None:
    site.jobs.add_job("images/thumbnail")
    assert console.post("jobs/all/stop", **form).status_code in (400, 409)
    assert site.count("QUEUED") == 1


_ACTS = [
    "jobs/1001/retry",
    "jobs/1001/remove",
    "jobs/all/retry",
    "job-queues/main/suspend",
    "schedules/hourly/suspend",
    "schedules/hourly/fire",
]


@pytest.mark.parametrize("path", _ACTS)
@pytest.mark.parametrize(
    ("token", "sent_from", "status"),
    [
        ("viewer", "same-origin", 403),
        ("nobody", "same-origin", 401),
        ("operator", "cross-site", 403),
        ("operator", "same-site", 403),
        ("operator", "none", 403),
    ],
)
def test_who_may_not_changes_nothing(
    site: JobsSite, console: ConsoleSite, path: str, token: str, sent_from: str, status: int
) -> None:
    site.finished(1001, "GIVEN_UP")
    form = {"state": "GIVEN_UP", "count": "1", "typed": "retry 1"}
    assert console.post(path, token, sent_from, **form).status_code == status
    assert site.count("GIVEN_UP") == 1
    assert not site.jobs.queue("main").suspended


def test_without_the_scope_there_are_no_buttons(site: JobsSite, console: ConsoleSite) -> None:
    site.finished(1001, "GIVEN_UP")
    for path in ("jobs", "jobs/1001"):
        main = console.get(path, "viewer").text.partition("<main")[2]
        assert "given up" in main
        assert "<form" not in main
        assert "Retry all" not in main
