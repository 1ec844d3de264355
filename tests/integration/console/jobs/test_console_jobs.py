"""The pages of jobs in a real browser: what they show, and that they show it as text."""

from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect

from packhorse.jobs.ledger import finding
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.store import create_schedule
from packhorse.jobs.scheduling.timing import At, Cron
from packhorse.jobs.store.queues import QueueConfiguration, QueueType
from tests.harness.jobs.pages import signed_in
from tests.harness.jobs.site import JobsSite
from tests.harness.jobs.stored import store_many_finished

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"
ATTEMPT = {
    "number": 1,
    "instance": "worker-1",
    "started_at": "2026-01-01T12:00:00Z",
    "ended_at": "2026-01-01T12:00:09Z",
    "outcome": "LOST",
    "reason": "its lease ran out",
}


def numbers(page: Page) -> list[int]:
    return [int(text) for text in page.locator("[data-job] th").all_inner_texts()]


def test_jobs_are_there_with_what_they_say(browser: Browser, site: JobsSite) -> None:
    waiting = site.jobs.add_job("images/thumbnail", id="cover").job.number
    site.active(1001, progress={"step": 3, "steps": 10, "message": "scaling"})
    site.finished(1002, "GIVEN_UP", result_message="no disk", retry=True)
    with signed_in(browser, site) as opened:
        page = opened.page
        assert numbers(page) == [waiting, 1001, 1002]
        expect(page.locator(f"[data-job='{waiting}']")).to_contain_text("cover")
        expect(page.locator("[data-job='1001']")).to_contain_text("3 of 10: scaling")
        expect(page.locator("[data-job='1002']")).to_contain_text("no disk")
        expect(page.locator("[data-job='1002'] .badge")).to_have_text("retry")
        expect(page.locator("#state")).to_have_text("live")


def test_a_change_appears_without_a_reload(browser: Browser, site: JobsSite) -> None:
    with signed_in(browser, site) as opened:
        page = opened.page
        expect(page.get_by_label("Jobs", exact=True)).to_contain_text("No job matches")
        page.evaluate("window.stillHere = true")
        number = site.jobs.add_job("images/thumbnail").job.number
        expect(page.locator(f"[data-job='{number}']")).to_contain_text("queued")
        site.jobs.stop(number)
        expect(page.locator(f"[data-job='{number}']")).to_contain_text("stopped")
        assert page.evaluate("window.stillHere")


def test_the_filter_is_in_the_address(browser: Browser, site: JobsSite) -> None:
    for size in (3, 10, 12):
        site.jobs.add_job("images/thumbnail", {"size": size, "color": "red"}, f"id-{size}")
    site.jobs.add_job("mail/send", {"size": 50})
    site.finished(1001, "ERROR", properties={"size": 50, "color": "red"})
    with signed_in(browser, site) as opened:
        page = opened.page
        page.select_option("[name=state]", "QUEUED")
        page.fill("[name=topic]", "images/*")
        page.fill("[name=where]", "size>=10 and color=red")
        page.click("[role=search] button")
        expect(page.locator("[data-job]")).to_have_count(2)
        assert "state=QUEUED&topic=images%2F*" in page.url
        expect(page.get_by_label("Properties")).to_have_value("size>=10 and color=red")
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("[data-job]")).to_have_count(2)
        page.goto(f"{site.url}/pages/jobs?id=id-12")
        expect(page.locator("[data-job]")).to_have_count(1)


def test_what_is_no_filter_is_reported_on_the_page(browser: Browser, site: JobsSite) -> None:
    reported = {
        "state=LOST": "state",
        "topic=/images": "topic",
        "where=size!3": "is no operator",
        "where=size": "is no condition",
        "after=x": "cursor",
    }
    with signed_in(browser, site) as opened:
        for query, says in reported.items():
            opened.page.goto(f"{site.url}/pages/jobs?{query}")
            expect(opened.page.get_by_role("alert")).to_contain_text(says)
            expect(opened.page.locator("[data-queue=main]")).to_be_visible()


def test_a_search_that_takes_too_long_is_reported_and_the_rest_is_shown(
    browser: Browser, site: JobsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_many_finished(site.database_url, 30_000)
    monkeypatch.setattr(finding, "PATIENCE_MS", 1)
    with signed_in(browser, site, "jobs?where=absent=1") as opened:
        expect(opened.page.get_by_role("alert")).to_contain_text("name a topic")
        expect(opened.page.locator("[data-queue=main]")).to_be_visible()
        expect(opened.page.locator("#state")).to_have_text("live")


def test_many_jobs_have_pages(browser: Browser, site: JobsSite) -> None:
    for number in range(1001, 1121):
        site.finished(number, finished_at=datetime.fromtimestamp(1_700_000_000 + number, UTC))
    with signed_in(browser, site) as opened:
        page, seen = opened.page, numbers(opened.page)
        while page.get_by_role("link", name="Next page").count():
            page.get_by_role("link", name="Next page").click()
            page.wait_for_load_state()
            seen += numbers(page)
        assert seen == [*range(1120, 1000, -1)]


def test_one_job_with_its_attempts_and_its_log(browser: Browser, site: JobsSite) -> None:
    site.active(
        1001,
        id="cover",
        attempts=2,
        retry=True,
        properties={"size": 3},
        extra={"found": ["a"]},
        progress={"step": 1, "steps": 4, "message": "half"},
        log=["began", "reads"],
        past_attempts=[ATTEMPT],
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    with signed_in(browser, site, "jobs/1001") as opened:
        page = opened.page
        expect(page.locator("h1")).to_have_text("Job 1001")
        expect(page.locator("main")).to_contain_text("an earlier attempt may have done a part")
        expect(page.get_by_label("Properties")).to_contain_text('"size": 3')
        expect(page.get_by_label("Properties")).to_contain_text('"found"')
        expect(page.locator("[data-attempt='1']")).to_contain_text("its lease ran out")
        expect(page.get_by_label("Log")).to_contain_text("began\nreads")
        expect(page.locator("progress")).to_have_attribute("max", "4")
        expect(page.locator("main")).to_contain_text("0af7651916cd43dd8448eb211c80319c")


def test_who_waits_for_nobody_is_seen(browser: Browser, site: JobsSite) -> None:
    site.jobs.add_job("images/thumbnail")
    number = site.jobs.add_job("mail/send").job.number
    with signed_in(browser, site) as opened:
        page = opened.page
        lonely = page.get_by_label("Without a consumer")
        expect(lonely).to_contain_text("mail/send (1)")
        expect(lonely).not_to_contain_text("images")
        lonely.get_by_role("link").click()
        expect(page.locator("[data-job]")).to_have_count(1)
        page.click(f"text='{number}'")
        expect(page.locator("main")).to_contain_text("waits for a consumer")


def test_queues_and_schedules_are_there(browser: Browser, site: JobsSite) -> None:
    site.jobs.put_queue(QueueConfiguration("mail", ("mail/**",), type=QueueType.UNORDERED))
    site.jobs.add_job("mail/send")
    nightly = ScheduleDefinition(
        "nightly", Cron("30 2 * * *", "Europe/Berlin"), JobAction("images/sweep"), "Sweeps"
    )
    once = ScheduleDefinition("once", At(datetime(2999, 1, 1, tzinfo=UTC)), JobAction("a/b"))
    with site.bookkeeper() as connection:
        create_schedule(connection, nightly, origin="test")
        create_schedule(connection, once, origin="test")
    with signed_in(browser, site) as opened:
        page = opened.page
        expect(page.locator("[data-queue=mail]")).to_contain_text("unordered")
        expect(page.locator("[data-queue=mail] [data-label=Queued]")).to_have_text("1")
        page.get_by_role("link", name="Schedules").click()
        row = page.locator("[data-schedule=nightly]")
        expect(row).to_contain_text("30 2 * * * (Europe/Berlin)")
        expect(row).to_contain_text("Sweeps")
        row.get_by_role("link", name="nightly").click()
        expect(page.get_by_label("Schedule", exact=True).locator("time")).to_have_count(3)
        page.goto(f"{site.url}/pages/schedule?name=once")
        expect(page.get_by_label("Schedule", exact=True).locator("time")).to_have_count(1)


def test_what_strangers_wrote_is_text(browser: Browser, site: JobsSite) -> None:
    site.finished(
        1001,
        "ERROR",
        id=HOSTILE,
        application=HOSTILE,
        result_message=HOSTILE,
        properties={HOSTILE: HOSTILE},
        log=[HOSTILE],
        past_attempts=[{**ATTEMPT, "reason": HOSTILE}],
    )
    with signed_in(browser, site) as opened:
        page = opened.page
        expect(page.locator("[data-job='1001'] .says")).to_have_text(HOSTILE)
        page.goto(f"{site.url}/pages/jobs/1001")
        expect(page.get_by_label("Log")).to_contain_text(HOSTILE)
        expect(page.locator("[data-attempt='1'] .says")).to_have_text(HOSTILE)
        expect(page.locator("#state")).to_have_text("live")
        assert page.locator("main script, main img").count() == 0
