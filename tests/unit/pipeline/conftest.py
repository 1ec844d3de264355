"""What tests of the pipeline share that need no Spark."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from packhorse_services.pipeline.engine.jars import _pinned
from packhorse_services.pipeline.storage.location import Location
from tests.harness.example_queries import opened_as_documented, written


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give tables that the questions of docs/tables.md are asked of, opened as the page says."""
    folder = tmp_path_factory.mktemp("tables")
    written(Location.parse(str(folder)))
    with opened_as_documented(str(folder)) as database:
        yield database


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file for each jar, the one of the settings: nothing was fetched."""
    for name in _pinned():
        (tmp_path / name).touch()
    monkeypatch.setenv("PACKHORSE_SPARK_JARS", str(tmp_path))
    return tmp_path
