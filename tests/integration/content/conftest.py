"""The author's side, in process."""

from pathlib import Path

import pytest

from tests.harness.author import Author
from tests.harness.content import Serve, serve_content


@pytest.fixture
def serve(database_url: str, tmp_path: Path) -> Serve:
    """Run a scenario against a content service of the test's own."""
    return lambda scenario: serve_content(scenario, database_url, tmp_path / "blobs")


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Author:
    """The content program on a database and a blob store of the test's own."""
    return Author(database_url, tmp_path)
