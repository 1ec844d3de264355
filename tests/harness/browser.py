"""A real browser, the system's Chromium, that remembers what it complained of."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

_ARGUMENTS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-dev-shm-usage"]
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
_SEND = """([url, fields]) => {
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: url});
    for (const [name, value] of Object.entries(fields))
        form.append(Object.assign(document.createElement("input"), {name, value}));
    document.body.append(form);
    setTimeout(() => form.submit(), 0);
}"""


@dataclass
class Tab:
    """A page without cookies. `complaints` are errors of scripts and breaches of the policy."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def text(self, selector: str = "body") -> str:
        return self.page.inner_text(selector)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start it. Its program comes from the system's package `chromium`."""
    program = shutil.which("chromium")
    assert program, "install the system package chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a file of tests."""
    with chromium() as started:
        yield started


@contextmanager
def tab(browser: Browser, **context: Any) -> Iterator[Tab]:
    """Open a tab without cookies; `context` says how its browser differs from ours.

    Tabs like ours are one page, which is empty in between: another page takes the browser as much
    time as two addresses in this one. All that a page of ours leaves behind is cookies.
    """
    profile = browser.new_context(**context) if context else _profile(browser)
    page = profile.pages[0] if profile.pages else profile.new_page()
    opened = Tab(page)
    heard: dict[Any, Callable[[Any], None]] = {
        "console": lambda said: _note(opened, said.type, said.text),
        "pageerror": lambda error: opened.complaints.append(str(error)),
        "dialog": lambda dialog: (opened.dialogs.append(dialog.message), dialog.dismiss()),
    }
    for event, listener in heard.items():
        page.on(event, listener)
    try:
        yield opened
    finally:
        for event, listener in heard.items():
            page.remove_listener(event, listener)
        if context:
            profile.close()
        else:
            _emptied(profile)


def sign_in(opened: Tab, url: str, token: str) -> None:
    """Let its browser have the cookies that come of signing in to a console, without the form."""
    answer = opened.page.request.post(
        f"{url}/pages/sign-in",
        form={"token": token},
        headers={"Sec-Fetch-Site": "same-origin"},
        max_redirects=0,
    )
    assert answer.status == 303, answer.text()


@contextmanager
def signed_in(browser: Browser, url: str, path: str, token: str = "operator") -> Iterator[Tab]:
    """Open a page of a console as somebody; in the end, the browser has complained of nothing."""
    with tab(browser) as opened:
        sign_in(opened, url, token)
        opened.page.goto(f"{url}/pages/{path}")
        expect(opened.page.locator("#content")).to_be_visible()
        yield opened
        assert opened.complaints == []
        assert opened.dialogs == []


def send_from_elsewhere(opened: Tab, url: str, path: str, **fields: str) -> None:
    """Let a page of another site send a form to a console, and show the answer."""
    opened.page.goto(f"{url.replace('127.0.0.1', 'localhost')}/livez")
    opened.page.evaluate(_SEND, [f"{url}/pages/{path}", fields])
    opened.page.wait_for_url(f"{url}/pages/{path}")


def _profile(browser: Browser) -> BrowserContext:
    profile = browser.contexts[0] if browser.contexts else browser.new_context()
    assert all(page.url == "about:blank" for page in profile.pages), "a tab is open"
    return profile


def _emptied(profile: BrowserContext) -> None:
    first, *others = profile.pages
    for page in others:
        page.close()
    first.goto("about:blank")
    profile.clear_cookies()


def _note(opened: Tab, kind: str, text: str) -> None:
    if kind == "error" and "status of 401" not in text:  # a refused sign-in is one, too
        opened.complaints.append(text)
