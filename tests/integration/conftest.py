"""What several tests of the publisher, and of the journal's logins, work with."""

from pathlib import Path

import pytest

from tests.harness.journal_logins import JournalLogins
from tests.harness.postgres import Databases
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    """A publisher whose author has five pages, `/p0` to `/p4`."""
    service = PublisherService(database_url, tmp_path)
    service.author.write(*(page(f"/p{number}") for number in range(5)))
    return service


@pytest.fixture(scope="session")
def journal_logins(lasting_databases: Databases) -> JournalLogins:
    """The roles of a journal's programs, once a server."""
    return JournalLogins(lasting_databases)
