"""A place for tables, and the service of reports on it."""

from pathlib import Path

import pytest

from packhorse_services.pipeline.storage.location import Location
from tests.harness.measures import Reports


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "tables"))


@pytest.fixture
def reports(location: Location) -> Reports:
    return Reports(location)
