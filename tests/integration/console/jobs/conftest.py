"""A console over a jobs service, one a module; each test begins without jobs."""

from collections.abc import Iterator

import pytest

from tests.harness.jobs.asking import emptied
from tests.harness.jobs.pages import jobs_pages
from tests.harness.jobs.site import JobsSite
from tests.harness.postgres import Databases


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[JobsSite]:
    with jobs_pages(databases.new()) as site:
        yield site


@pytest.fixture
def site(running: JobsSite) -> JobsSite:
    return emptied(running)
