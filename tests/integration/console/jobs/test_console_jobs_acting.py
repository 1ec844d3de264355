"""What an operator does with the pages of jobs, in a real browser; and what others may not."""

import httpx
import pytest
from playwright.sync_api import Browser, expect

from packhorse.jobs.job import JobState
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.store import create_schedule, get_schedule
from packhorse.jobs.scheduling.timing import Cron
from tests.harness.browser import sign_in, tab
from tests.harness.jobs.pages import signed_in
from tests.harness.jobs.site import JobsSite
from tests.harness.waiting import eventually


def post(
    site: JobsSite, path: str, token: str = "operator", sent_from: str = "same-origin", **form: str
) -> httpx.Response:
    """Send a form as a browser does that has signed in."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": sent_from}
    with httpx.Client(timeout=120) as client:
        sign_in = {"token": token}
        client.post(
            f"{site.url}/pages/sign-in", data=sign_in, headers={"Sec-Fetch-Site": "same-origin"}
        )
        return client.post(f"{site.url}/pages/{path}", data=form, headers=headers)


def test_a_job_is_retried_stopped_and_removed(browser: Browser, site: JobsSite) -> None:
    site.finished(1001, "GIVEN_UP")
    with signed_in(browser, site, "jobs/1001") as opened:
        page = opened.page
        page.get_by_role("button", name="Retry").click()
        expect(page.locator(".notice")).to_have_text("It is queued again.")
        expect(page.locator(".summary")).to_contain_text("queued")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".summary")).to_contain_text("stopped")
        page.get_by_role("button", name="Remove").click()
        expect(page.locator("h1")).to_have_text("Jobs")
        expect(page.locator(".notice")).to_have_text("The job is removed.")
        expect(page.locator("[data-job]")).to_have_count(0)


def test_a_job_that_runs_is_asked_to_stop(browser: Browser, site: JobsSite) -> None:
    site.active(1001)
    with signed_in(browser, site, "jobs/1001") as opened:
        opened.page.get_by_role("button", name="Stop").click()
        expect(opened.page.locator(".summary .badge")).to_have_text("stopping")
    assert site.jobs.get(1001).stop_requested


def test_what_the_state_does_not_allow_is_reported(site: JobsSite) -> None:
    site.active(1001)
    refused = post(site, "jobs/1001/retry")
    assert refused.status_code == 409
    assert "<h1>Not done</h1>" in refused.text
    gone = post(site, "jobs/4711/stop")
    assert (gone.status_code, "4711" in gone.text) == (404, True)


def test_a_queue_is_suspended_and_resumed(browser: Browser, site: JobsSite) -> None:
    with signed_in(browser, site, "jobs?state=QUEUED") as opened:
        page, row = opened.page, opened.page.locator("[data-queue=main]")
        row.get_by_role("button", name="Suspend").click()
        expect(row.locator(".badge")).to_have_text("suspended")
        assert site.jobs.queue("main").suspended
        assert "state=QUEUED" in page.url, "what was looked for stays"
        row.get_by_role("button", name="Resume").click()
        expect(row.locator(".badge")).to_have_count(0)
    assert not site.jobs.queue("main").suspended


def test_a_schedule_is_suspended_and_resumed(browser: Browser, site: JobsSite) -> None:
    hourly = ScheduleDefinition("hourly", Cron("0 * * * *"), JobAction("a/b"))
    with site.bookkeeper() as connection:
        create_schedule(connection, hourly, origin="test")
    with signed_in(browser, site, "schedules") as opened:
        row = opened.page.locator("[data-schedule=hourly]")
        row.get_by_role("button", name="Suspend").click()
        expect(row.locator(".badge")).to_have_text("suspended")
        expect(row.locator("time")).to_have_count(0)
        with site.bookkeeper() as connection:
            assert get_schedule(connection, "hourly").definition.suspended
        row.get_by_role("button", name="Resume").click()
        expect(row.locator("time")).to_have_count(1)


def test_a_schedule_is_fired_now(browser: Browser, site: JobsSite) -> None:
    yearly = ScheduleDefinition("yearly", Cron("0 0 1 1 *"), JobAction("a/b"), suspended=True)
    with site.bookkeeper() as connection:
        create_schedule(connection, yearly, origin="test")
    with signed_in(browser, site, "schedule?name=yearly") as opened:
        page = opened.page
        page.get_by_role("button", name="Fire now").click()
        expect(page.get_by_label("What came of it")).to_contain_text("fired")
        expect(page.locator("dl .badge")).to_have_text("suspended")
        assert site.count("QUEUED") == 1
        page.get_by_label("What came of it").get_by_role("link").click()
        expect(page.locator(".summary")).to_contain_text("queued")
    for _ in range(2):
        assert post(site, "schedules/yearly/fire", key="k1").status_code == 303
    assert site.count("QUEUED") == 2, "a form fires once"


def test_all_that_a_filter_finds_is_retried_once_it_is_typed(
    browser: Browser, site: JobsSite
) -> None:
    for number in range(1001, 1013):
        site.finished(number, "GIVEN_UP", properties={"size": number})
    site.finished(2001, "GIVEN_UP", topic="mail/send")
    with signed_in(browser, site, "jobs?state=GIVEN_UP&topic=images/**&where=size>=1003") as opened:
        page = opened.page
        page.get_by_role("link", name="Retry all").click()
        expect(page.locator("main")).to_contain_text("10 jobs that the filter finds")
        expect(page.locator("main")).to_contain_text("images/**")
        page.fill("#typed", "retry 10")
        page.get_by_role("button", name="Retry jobs").click()
        expect(page.locator(".notice")).to_have_text("10 jobs are queued again.")
        expect(page.locator("[data-job]")).to_have_count(0)
    assert (site.count("QUEUED"), site.count("GIVEN_UP")) == (10, 3)


def test_what_is_typed_wrong_changes_nothing(browser: Browser, site: JobsSite) -> None:
    for number in range(3):
        site.jobs.add_job("images/thumbnail", id=str(number))
    with signed_in(browser, site) as opened:
        page = opened.page
        page.get_by_role("link", name="Stop all").click()
        page.fill("#typed", "stop 2")
        page.get_by_role("button", name="Stop jobs").click()
        expect(page.get_by_role("alert")).to_contain_text("not the text to type")
        assert site.count("QUEUED") == 3
        page.fill("#typed", "stop 3")
        page.get_by_role("button", name="Stop jobs").click()
        expect(page.locator(".notice")).to_contain_text("3 jobs are stopped")
        assert any("status of 400" in one for one in opened.complaints)
        opened.complaints.clear()  # the browser's word for the refusal
    assert site.count("STOPPED") == 3


HOLD_AN_ANSWER = """() => {
    const fetched = window.fetch, held = new Promise((go) => { window.release = go; });
    window.fetch = async (where, how) => {
        const answer = await fetched(where, { ...how, headers: {} });
        const text = answer.text.bind(answer);
        answer.text = () => window.read = (async () => { await held; return text(); })();
        return answer;
    };
}"""


def test_a_press_that_begins_while_an_answer_comes_is_not_lost(
    browser: Browser, site: JobsSite
) -> None:
    site.jobs.add_job("images/thumbnail")
    with signed_in(browser, site) as opened:
        page = opened.page
        link = page.get_by_role("link", name="Stop all")
        expect(link).to_be_visible()
        page.evaluate(HOLD_AN_ANSWER)
        eventually(lambda: page.evaluate("() => 'read' in window"), what="an answer comes")
        link.hover()
        page.mouse.down()
        page.evaluate(
            "() => { release(); return read.then(() => new Promise((go) => setTimeout(go))); }"
        )
        page.mouse.up()
        expect(page.locator("#typed")).to_be_visible()


def test_no_more_is_changed_than_was_confirmed(site: JobsSite) -> None:
    for number in range(5):
        site.jobs.add_job("images/thumbnail", id=str(number))
    form = {"state": "QUEUED", "count": "2", "typed": "stop 2"}
    done = post(site, "jobs/all/stop", **form)
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
def test_a_forged_form_changes_nothing(site: JobsSite, form: dict[str, str]) -> None:
    site.jobs.add_job("images/thumbnail")
    assert post(site, "jobs/all/stop", **form).status_code in (400, 409)
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
    site: JobsSite, path: str, token: str, sent_from: str, status: int
) -> None:
    site.finished(1001, "GIVEN_UP")
    form = {"state": "GIVEN_UP", "count": "1", "typed": "retry 1"}
    assert post(site, path, token, sent_from, **form).status_code == status
    assert site.count("GIVEN_UP") == 1
    assert not site.jobs.queue("main").suspended


def test_without_the_scope_there_are_no_buttons(browser: Browser, site: JobsSite) -> None:
    site.finished(1001, "GIVEN_UP")
    with signed_in(browser, site, token="viewer") as opened:
        page = opened.page
        expect(page.locator("main form")).to_have_count(0)
        expect(page.get_by_role("link", name="Retry all")).to_have_count(0)
        page.goto(f"{site.url}/pages/jobs/1001")
        expect(page.locator("main form")).to_have_count(0)


def test_the_keyboard_keeps_its_place_when_the_page_changes(
    browser: Browser, site: JobsSite
) -> None:
    with signed_in(browser, site) as opened:
        page, button = opened.page, opened.page.locator("[data-queue=main] button")
        button.focus()
        number = site.jobs.add_job("images/thumbnail").job.number
        expect(page.locator(f"[data-job='{number}']")).to_be_visible()
        expect(button).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("[data-queue=main] .badge")).to_have_text("suspended")


def test_another_site_can_not_act_through_the_browser(browser: Browser, site: JobsSite) -> None:
    site.finished(1001, "GIVEN_UP")
    other = site.url.replace("127.0.0.1", "localhost")
    with tab(browser) as opened:
        sign_in(opened, site.url, "operator")
        opened.page.goto(f"{site.url}/pages/jobs")
        expect(opened.page.locator("[data-job]")).to_have_count(1)
        opened.page.goto(f"{other}/livez")
        opened.page.evaluate(
            """url => {
              const form = document.createElement('form');
              Object.assign(form, {method: 'post', action: url});
              document.body.append(form);
              setTimeout(() => form.submit(), 0);
            }""",
            f"{site.url}/pages/jobs/1001/retry",
        )
        opened.page.wait_for_url(f"{site.url}/pages/jobs/1001/retry")
        assert "must be sent from a page of this service" in opened.text()
    assert site.jobs.get(1001).state is JobState.GIVEN_UP
