"""The journals that the end-to-end tests run on, and one running site for each."""

from collections.abc import Iterator

import pytest

from tests.harness.command_line import Up, data_folder
from tests.harness.postgres import Databases
from tests.harness.site import Site, site

JOURNALS = ["sql", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(scope="session", params=JOURNALS)
def journal_url(request: pytest.FixtureRequest, databases: Databases) -> str:
    """Each journal in turn; Kafka starts only for the tests that run on it."""
    if request.param == "sql":
        return databases.new("journal")
    url: str = request.getfixturevalue("kafka").url
    return url


@pytest.fixture(scope="session")
def running(databases: Databases, journal_url: str) -> Iterator[Site]:
    """A site with two subscribers; those who share it take paths of their own."""
    with site(databases, journal_url) as built:
        built.subscriber("sub1", editable=True)
        built.subscriber("sub2")
        built.start()
        yield built


@pytest.fixture(scope="session")
def up() -> Iterator[Up]:
    """`packhorse up` with three subscribers; those who share it take paths of their own."""
    with data_folder() as folder:
        stack = Up(folder)
        stack.start()
        stack.ready()
        yield stack
        stack.stop()
