"""The console's pages over a jobs service and its real database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from playwright.sync_api import Browser, expect

from tests.harness.browser import Tab, sign_in, tab
from tests.harness.console import console_site
from tests.harness.jobs.site import OPERATOR, JobsSite, jobs_site

_PATIENCE_MS = 60_000
expect.set_options(timeout=_PATIENCE_MS)


@contextmanager
def jobs_pages(database_url: str) -> Iterator[JobsSite]:
    """Serve them to `viewer`, `operator` and `admin`; the site's URL is that of the console."""
    with jobs_site(database_url) as site, console_site(jobs_urls={"author": site.url}) as console:
        console.callers.known["operator"] = OPERATOR
        yield replace(site, url=console.url)


@contextmanager
def signed_in(
    browser: Browser, site: JobsSite, path: str = "jobs", token: str = "operator", **context: Any
) -> Iterator[Tab]:
    with tab(browser, **context) as opened:
        sign_in(opened, site.url, token)
        opened.page.goto(f"{site.url}/pages/{path}")
        expect(opened.page.locator("#content")).to_be_visible()
        yield opened
        assert opened.complaints == []
        assert opened.dialogs == []
