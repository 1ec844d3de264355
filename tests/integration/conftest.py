"""What several tests of the publisher work with."""

from pathlib import Path

import pytest

from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    """A publisher whose author has five pages, `/p0` to `/p4`."""
    service = PublisherService(database_url, tmp_path)
    service.author.write(*(page(f"/p{number}") for number in range(5)))
    return service
