"""The jobs service over HTTP, one a module, without the jobs of the test before."""

from collections.abc import Iterator

import pytest

from tests.harness.jobs.asking import emptied
from tests.harness.jobs.site import JobsSite, jobs_site
from tests.harness.postgres import Databases


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[JobsSite]:
    with jobs_site(databases.new()) as served:
        yield served


@pytest.fixture
def site(running: JobsSite) -> JobsSite:
    return emptied(running)
