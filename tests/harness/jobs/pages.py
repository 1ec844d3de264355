"""The console's pages over a jobs service and its real database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.harness.console import console_site
from tests.harness.jobs.site import OPERATOR, JobsSite, jobs_site


@contextmanager
def jobs_pages(database_url: str) -> Iterator[JobsSite]:
    """Serve them to `viewer`, `operator` and `admin`; the site's URL is that of the console."""
    with jobs_site(database_url) as site, console_site(jobs_urls={"author": site.url}) as console:
        console.callers.known["operator"] = OPERATOR
        yield replace(site, url=console.url)
