"""The jobs service over HTTP, one a module, without the jobs of the test before."""

from collections.abc import Iterator

import pytest

from packhorse.jobs.scheduling import scheduler
from tests.harness.jobs.asking import emptied
from tests.harness.jobs.site import JobsSite, jobs_site
from tests.harness.postgres import Databases


@pytest.fixture(autouse=True)
def _patient_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that stands still for seconds keeps the transaction in which it fires."""
    monkeypatch.setattr(scheduler, "_PAUSE", "2min")


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[JobsSite]:
    with jobs_site(databases.new()) as served:
        yield served


@pytest.fixture
def site(running: JobsSite) -> JobsSite:
    return emptied(running)
