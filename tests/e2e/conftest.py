"""The journals that the end-to-end tests run on, and one running site for each."""

from collections.abc import Iterator

import pytest

from tests.harness.postgres import Databases
from tests.harness.site import Site, site

JOURNALS = ["sql", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(scope="module", params=JOURNALS)
def journal_url(request: pytest.FixtureRequest, databases: Databases) -> str:
    """Each journal in turn; Kafka starts only for the tests that run on it."""
    if request.param == "sql":
        return databases.new("journal")
    url: str = request.getfixturevalue("kafka").url
    return url


@pytest.fixture(scope="module")
def running(databases: Databases, journal_url: str) -> Iterator[Site]:
    """A site with two subscribers, shared by a module's tests: each takes paths of its own."""
    with site(databases, journal_url) as built:
        built.subscriber("sub1", editable=True)
        built.subscriber("sub2")
        built.start()
        yield built
