"""A subscriber that has imported everything, on a database of its own."""

import pytest

from tests.harness.postgres import Databases
from tests.integration.subscriber.conftest import Workers, empty
from tests.integration.subscriber.snapshots.histories import Complete


@pytest.fixture(scope="module")
def complete_database(databases: Databases) -> str:
    return databases.new("complete")


@pytest.fixture
def complete_url(complete_database: str) -> str:
    """The database of a subscriber that imports everything."""
    empty(complete_database)
    return complete_database


@pytest.fixture
def complete(workers: Workers, complete_url: str) -> Complete:
    """Makes the worker of a subscriber that has imported everything."""
    return lambda **options: workers(complete_url, name="complete", **options)
