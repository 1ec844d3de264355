"""The few fixtures that everybody uses."""

from collections.abc import Iterator

import pytest

from packhorse_services.cli.embedded import EmbeddedPostgres
from tests.harness.postgres import Databases, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A real server for the whole session."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres: EmbeddedPostgres) -> Databases:
    """Fresh databases on that server."""
    return Databases(postgres)


@pytest.fixture
def database_url(databases: Databases) -> str:
    """A migrated, empty database of the test's own."""
    return databases.new()
