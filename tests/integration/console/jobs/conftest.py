"""A console over a jobs service, one a module; each test begins without jobs."""

from collections.abc import Iterator

import pytest

from tests.harness.console import ConsoleSite, console_site
from tests.harness.jobs.asking import emptied
from tests.harness.jobs.site import OPERATOR, JobsSite, jobs_site
from tests.harness.postgres import Databases


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[tuple[JobsSite, ConsoleSite]]:
    url = databases.new()
    with jobs_site(url) as site, console_site(jobs_urls={"author": site.url}) as console:
        console.callers.known["operator"] = OPERATOR
        yield site, console


@pytest.fixture
def site(running: tuple[JobsSite, ConsoleSite]) -> JobsSite:
    return emptied(running[0])


@pytest.fixture
def console(running: tuple[JobsSite, ConsoleSite]) -> ConsoleSite:
    return running[1]
