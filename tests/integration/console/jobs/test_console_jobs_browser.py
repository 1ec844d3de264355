"""What an operator does with the pages of jobs in a real browser; and what another site may not."""

from playwright.sync_api import Browser, expect

from packhorse.jobs.job import JobState
from tests.harness.browser import send_from_elsewhere, signed_in
from tests.harness.console import ConsoleSite
from tests.harness.jobs.site import JobsSite
from tests.harness.waiting import eventually

HOLD_AN_ANSWER = """() => {
    const fetched = window.fetch, held = new Promise((go) => { window.release = go; });
    window.fetch = async (where, how) => {
        const answer = await fetched(where, { ...how, headers: {} });
        const text = answer.text.bind(answer);
        answer.text = () => window.read = (async () => { await held; return text(); })();
        return answer;
    };
}"""


RELEASE = "() => { release(); return read.then(() => new Promise((go) => setTimeout(go))); }"
LATER = """(ms) => [Date, performance].forEach((clock) => {
    const now = clock.now.bind(clock);
    clock.now = () => now() + ms;
})"""


def test_a_job_is_retried_stopped_and_removed(
    browser: Browser, site: JobsSite, console: ConsoleSite
) -> None:
    site.finished(1001, "GIVEN_UP")
    with signed_in(browser, console.url, "jobs/1001") as opened:
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


def test_a_press_that_begins_while_an_answer_comes_is_not_lost(
    browser: Browser, site: JobsSite, console: ConsoleSite
) -> None:
    site.jobs.add_job("images/thumbnail")
    with signed_in(browser, console.url, "jobs") as opened:
        page = opened.page
        link = page.get_by_role("link", name="Stop all")
        expect(link).to_be_visible()
        page.evaluate(HOLD_AN_ANSWER)
        eventually(lambda: page.evaluate("() => 'read' in window"), what="an answer comes")
        link.hover()
        page.mouse.down()
        page.evaluate(RELEASE)
        page.mouse.up()
        expect(page.locator("#typed")).to_be_visible()


def test_a_computer_that_slept_while_an_answer_came_asks_again_within_a_minute(
    browser: Browser, site: JobsSite, console: ConsoleSite
) -> None:
    with signed_in(browser, console.url, "jobs") as opened:
        page = opened.page
        page.evaluate(HOLD_AN_ANSWER)
        eventually(lambda: page.evaluate("() => 'read' in window"), what="an answer comes")
        page.evaluate(LATER, 36_000_000)
        page.evaluate(RELEASE)
        page.evaluate(LATER, 60_000)
        number = site.jobs.add_job("images/thumbnail").job.number
        expect(page.locator(f"[data-job='{number}']")).to_be_visible()
        page.evaluate("() => { AbortSignal.timeout = () => AbortSignal.abort(); }")
        page.evaluate(LATER, 60_000)
        expect(page.locator("#state")).to_contain_text("not live")


def test_no_row_moves_while_the_pointer_is_on_a_button_of_one(
    browser: Browser, site: JobsSite, console: ConsoleSite
) -> None:
    with signed_in(browser, console.url, "jobs") as opened:
        page = opened.page
        page.locator("[data-queue=main] button").hover()
        number = site.jobs.add_job("images/thumbnail").job.number
        expect(page.locator("#state")).to_contain_text("waits until the pointer leaves")
        expect(page.locator(f"[data-job='{number}']")).to_have_count(0)
        page.mouse.move(0, 0)
        expect(page.locator(f"[data-job='{number}']")).to_be_visible()


def test_the_keyboard_keeps_its_place_when_the_page_changes(
    browser: Browser, site: JobsSite, console: ConsoleSite
) -> None:
    with signed_in(browser, console.url, "jobs") as opened:
        page, button = opened.page, opened.page.locator("[data-queue=main] button")
        page.mouse.move(0, 0)
        button.focus()
        number = site.jobs.add_job("images/thumbnail").job.number
        expect(page.locator(f"[data-job='{number}']")).to_be_visible()
        expect(button).to_be_focused()
        link = page.locator("[data-queue=main] th a")
        link.focus()
        site.jobs.stop(number)
        expect(page.locator(f"[data-job='{number}']")).to_contain_text("stopped")
        expect(link).to_be_focused()
        button.focus()
        page.keyboard.press("Enter")
        expect(page.locator("[data-queue=main] .badge")).to_have_text("suspended")


def test_another_site_can_not_act_through_the_browser(
    browser: Browser, site: JobsSite, console: ConsoleSite
) -> None:
    site.finished(1001, "GIVEN_UP")
    with signed_in(browser, console.url, "jobs") as opened:
        expect(opened.page.locator("[data-job]")).to_have_count(1)
        send_from_elsewhere(opened, console.url, "jobs/1001/retry")
        assert "must be sent from a page of this service" in opened.text()
        opened.complaints.clear()  # the browser's word for the refusal
    assert site.jobs.get(1001).state is JobState.GIVEN_UP
