"""The console as an operator uses it: a real browser, and programs that were really blocked."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.harness.browser import Tab, tab
from tests.harness.postgres import Databases
from tests.harness.processes import Program
from tests.harness.site import Site, site
from tests.harness.waiting import eventually

_PATIENCE_MS = 120_000
PATIENT = {"backoff_first_s": 600, "backoff_longest_s": 600, "announce_s": 1}
"""What an operator retries by hand is not retried before by itself."""


@pytest.fixture(scope="module")
def running(lasting_databases: Databases, journal_url: str) -> Iterator[Site]:
    """One stack for the file: its subscriber waits after a failure until it is told to go on."""
    with site(lasting_databases, journal_url) as built:
        subscriber = built.subscriber("sub1", editable=True, **PATIENT)
        urls = json.dumps({"sub1": subscriber.url})
        built.programs.console(built.publisher, content_url=built.content.url, subscriber_urls=urls)
        built.start()
        yield built


@pytest.fixture
def console(running: Site) -> Program:
    (program,) = [one for one in running.programs.all if one.name == "console"]
    return program


@contextmanager
def signed_in(browser: Browser, running: Site, console: Program) -> Iterator[Tab]:
    """Come in by a link, as `packhorse up` prints one."""
    headers = {"Authorization": f"Bearer {running.programs.token}"}
    url = f"{console.url}/pages/sign-in-links"
    link = httpx.post(url, headers=headers, timeout=120).json()["path"]
    expect.set_options(timeout=_PATIENCE_MS)
    with tab(browser) as opened:
        opened.page.goto(f"{console.url}{link}")
        opened.page.get_by_role("button", name="Sign in").click()
        expect(opened.page.locator("h1")).to_have_text("Overview")
        yield opened
        # A publisher that is busy for 4 s is away to the console, and its page looks again.
        assert [one for one in opened.complaints if "status of 503" not in one] == []


@contextmanager
def refusing(running: Site, path: str) -> Iterator[None]:
    """Let the subscriber's database take no node at a path, until the block ends."""
    with psycopg.connect(running.database_urls["sub1"], autocommit=True) as connection:
        connection.execute(
            f"ALTER TABLE content.node ADD CONSTRAINT no_such_page CHECK (path <> '{path}')"
        )
        try:
            yield
        finally:
            connection.execute("ALTER TABLE content.node DROP CONSTRAINT no_such_page")


def blocked_at(running: Site, *paths: str) -> list[int]:
    """Distribute, wait until the first was tried in vain, and return the offsets."""
    offsets = []
    for path in paths:
        running.put(path)
        offsets.append(int(running.distribute(path)["offset"]))
    eventually(
        lambda: running.queue("sub1")["state"] in ("BLOCKED", "RETRYING"),
        timeout=180,
        what="sub1 is blocked",
    )
    return offsets


def until_idle(page: Page) -> None:
    expect(page.locator(".facts")).to_contain_text("idle")


def test_what_is_blocked_is_found_read_mended_and_retried(
    browser: Browser, running: Site, console: Program
) -> None:
    with signed_in(browser, running, console) as opened:
        page = opened.page
        with refusing(running, "/console/bad"):
            blocked_at(running, "/console/bad")
            urgent = page.locator("[data-urgent=sub1]")
            expect(urgent).to_contain_text("no_such_page")
            urgent.get_by_role("link", name="sub1").click()
            expect(page.locator("[data-offset]")).to_contain_text("/console/bad")
            expect(page.locator(".reason")).to_contain_text("no_such_page")
        page.get_by_role("button", name="Retry now").click()
        expect(page.locator(".notice")).to_contain_text("try the first package again")
        until_idle(page)
        expect(page.locator("[data-offset]")).to_have_count(0)
    assert running.at("sub1", "/console/bad") is not None
    commands = running.get("/commands?subscriber=sub1")["commands"]
    assert [(one["kind"], one["issued_by"]) for one in commands] == [("RETRY", "admin")]


def test_what_was_seen_is_cleared_and_what_comes_later_stays(
    browser: Browser, running: Site, console: Program
) -> None:
    with signed_in(browser, running, console) as opened, refusing(running, "/clear/bad"):
        page = opened.page
        offsets = blocked_at(running, "/clear/bad", "/clear/seen")
        page.goto(f"{console.url}/pages/queue?agent=main&subscriber=sub1")
        page.get_by_role("link", name=f"Clear up to {offsets[1]}").click()
        blocked_at(running, "/clear/later")  # arrives while the operator reads
        page.fill("#typed", "clear 2")
        page.get_by_role("button", name="Clear 2").click()
        until_idle(page)
    assert running.at("sub1", "/clear/later") is not None
    assert running.at("sub1", "/clear/bad") is None
    assert running.at("sub1", "/clear/seen") is None


def test_what_is_distributed_from_here_is_seen_live_and_at_the_subscriber(
    browser: Browser, running: Site, console: Program
) -> None:
    running.put("/console/page", properties={"title": "A page"})
    with signed_in(browser, running, console) as opened:
        live = opened.page.context.new_page()
        live.goto(f"{console.url}/pages/live")
        expect(live.locator("#state")).to_have_text("live")
        page = opened.page
        page.goto(f"{console.url}/pages/content?path=/console/page")
        expect(page.locator(".tree")).to_contain_text("A page")
        page.get_by_role("link", name="Distribute…").first.click()
        expect(page.locator(".facts")).to_contain_text("Nodes")
        page.get_by_role("button", name="Distribute", exact=True).click()
        expect(page.locator(".facts")).to_contain_text("distributed", timeout=_PATIENCE_MS)
        expect(live.locator("[data-kind=package]")).to_contain_text("/console/page")
        page.goto(f"{console.url}/pages/content?path=/console/page&at=sub1")
        expect(page.locator(".tree")).to_contain_text("A page")
        expect(page.locator("[data-distribution]")).to_contain_text("distributed")
        page.get_by_role("link", name="Is it equal everywhere?").click()
        expect(page.locator("[data-compared=sub1]")).to_contain_text("equal")


def test_what_differs_is_found_and_mended_there(
    browser: Browser, running: Site, console: Program
) -> None:
    running.put("/mend/page")
    running.distribute_everywhere("/mend/page")
    with psycopg.connect(running.database_urls["sub1"], autocommit=True) as connection:
        connection.execute("DELETE FROM content.node WHERE path = '/mend/page'")
    with signed_in(browser, running, console) as opened:
        page = opened.page
        page.goto(f"{console.url}/pages/compare?path=/mend&asked=1")
        expect(page.locator("[data-compared=sub1]")).to_contain_text("differs")
        page.get_by_role("link", name="sub1").click()
        expect(page.locator("[data-differs='/mend/page']")).to_contain_text("missing")
        page.fill("[name=typed]", "mend 1")
        page.get_by_role("button", name="Mend 1").click()
        expect(page.locator(".facts")).to_contain_text("distributed")
    assert running.at("sub1", "/mend/page") is not None


def test_a_subscriber_that_runs_is_stopped_before_it_is_reset(
    browser: Browser, running: Site, console: Program
) -> None:
    with signed_in(browser, running, console) as opened:
        page = opened.page
        page.goto(f"{console.url}/pages/subscriber?agent=main&subscriber=sub1")
        page.get_by_label("Go on behind offset").fill("0")
        page.get_by_role("button", name="Reset…").click()
        expect(page.locator("#typed")).to_have_count(0)
        page.get_by_role("button", name="Stop it").click()
        expect(page.locator(".facts")).to_contain_text("stopped")
        page.get_by_label("Go on behind offset").fill("0")
        page.get_by_role("button", name="Reset…").click()
        page.fill("#typed", "reset 0")
        page.get_by_role("button", name="Reset to 0").click()
        reset = page.locator("[data-command]", has_text="reset")
        expect(reset).to_contain_text("applied")
        page.get_by_role("button", name="Resume").click()
        until_idle(page)


def test_a_binary_of_a_subscriber_is_kept_as_a_file(
    browser: Browser, running: Site, console: Program
) -> None:
    content = bytes(range(256)) * 20_000  # in two parts
    binary = running.put_binary(content)
    running.put("/console/picture.png", binaries={"data": binary})
    running.distribute_everywhere("/console/picture.png")
    with signed_in(browser, running, console) as opened:
        page = opened.page
        page.goto(f"{console.url}/pages/content?path=/console/picture.png&at=sub1")
        with page.expect_download() as started:
            page.locator("[data-binary=data]").get_by_role("link").click()
        assert started.value.suggested_filename == "picture.png"
        assert started.value.path().read_bytes() == content
