"""What the measures know of the archive's tables without Spark: from their logs."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from packhorse_services.pipeline.measures.changes import Sources
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import prepare, stored
from packhorse_services.pipeline.storage.location import Location
from tests.harness.silver_rows import HOUR, START, append, package

DAY = 24 * HOUR
NO_SPARK: Any = None
"""Nothing is asked of it."""


@pytest.fixture
def location(tmp_path: Path) -> Location:
    place = Location.parse(str(tmp_path / "tables"))
    prepare(place)
    return place


def test_the_first_row_of_a_table_is_known_as_it_was_when_the_run_began(
    location: Location,
) -> None:
    append(location, tables.PACKAGES, [package(1, DAY + 7), package(2, 2 * DAY)])
    sources = Sources(NO_SPARK, location)
    append(location, tables.PACKAGES, [package(0, HOUR)])
    assert sources.earliest(tables.PACKAGES) == START + DAY + 7
    assert sources.earliest(tables.STATUSES) is None
    assert Sources(NO_SPARK, location).earliest(tables.PACKAGES) == START + HOUR


def test_of_a_file_without_statistics_the_day_is_known(location: Location) -> None:
    append(location, tables.PACKAGES, [package(1, DAY + HOUR)])
    held = stored(location, tables.PACKAGES)
    [found] = pa.table(held.get_add_actions()).to_pylist()
    day = {"day": "2026-01-01"}
    bare = AddAction(found["path"], found["size_bytes"], day, 0, True, stats="{}")
    held.create_write_transaction([bare], mode="append", schema=held.schema())
    assert Sources(NO_SPARK, location).earliest(tables.PACKAGES) == START


def test_where_there_is_no_table_there_is_no_row(tmp_path: Path) -> None:
    nowhere = Location.parse(str(tmp_path / "none"))
    assert Sources(NO_SPARK, nowhere).earliest(tables.PACKAGES) is None
