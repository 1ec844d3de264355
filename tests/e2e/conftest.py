"""The journal that the end-to-end tests run on, and the programs that they share.

They end with the last end-to-end test of a worker: idle, they take a tenth of a core from the rest.
"""

import os
from collections.abc import Iterator

import pytest

from tests.harness.browser import browser  # noqa: F401 - a fixture
from tests.harness.command_line import Up, data_folder
from tests.harness.postgres import Databases
from tests.harness.site import Site, site


@pytest.fixture(scope="session")
def journal_url(request: pytest.FixtureRequest, lasting_databases: Databases) -> str:
    """Postgres, or Kafka as `make chaos` has it: the contract suite holds both to one promise."""
    if os.environ.get("TEST_E2E_JOURNAL", "sql") == "sql":
        return lasting_databases.new("journal")
    url: str = request.getfixturevalue("kafka").url
    return url


@pytest.fixture(scope="package")
def running(lasting_databases: Databases, journal_url: str) -> Iterator[Site]:
    """A site with two subscribers; those who share it take paths of their own."""
    with site(lasting_databases, journal_url) as built:
        built.subscriber("sub1", editable=True)
        built.subscriber("sub2")
        built.start()
        yield built


@pytest.fixture(scope="package")
def up() -> Iterator[Up]:
    """`packhorse up` with three subscribers; those who share it take paths of their own."""
    with data_folder() as folder:
        stack = Up(folder)
        stack.start()
        stack.ready()
        yield stack
        stack.stop()
