"""The archive's tables without Spark: made once, checked, and fenced by transaction versions."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from packhorse_services.pipeline import tables
from packhorse_services.pipeline.archive.delta import ARCHIVE, Turn, begin, last_turn, prepare
from packhorse_services.pipeline.errors import SchemaChanged, TablesUnusable
from packhorse_services.pipeline.location import Location


def test_tables_are_made_once(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    prepare(location)
    for name in ARCHIVE:
        assert deltalake.DeltaTable(location.delta_uri(name)).version() == 0
    bronze = deltalake.DeltaTable(location.delta_uri(tables.BRONZE))
    assert bronze.metadata().partition_columns == ["topic", "day"]


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    frame = pa.table({"topic": ["t"], "partition": ["0"]})
    deltalake.write_deltalake(location.delta_uri(tables.BRONZE), frame)
    with pytest.raises(SchemaChanged, match="column partition of bronze is string, not int"):
        prepare(location)


def test_what_is_no_folder_holds_no_table(tmp_path: Path) -> None:
    (tmp_path / tables.BRONZE).write_text("mine")
    with pytest.raises(TablesUnusable, match="PACKHORSE_TABLES_URL"):
        prepare(Location.parse(str(tmp_path)))


def test_a_generation_is_behind_every_batch_of_the_one_before() -> None:
    versions = [
        Turn("q", generation, batch).version for generation in (0, 1) for batch in (-1, 0, 2**31)
    ]
    assert versions == sorted(set(versions))
    assert Turn.of("q", Turn("q", 7, 41).version) == Turn("q", 7, 41)


def test_tables_remember_the_turn_that_begins(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    assert last_turn(location, tables.BRONZE, "q") is None
    begin(location, [tables.BRONZE], Turn("q", 3))
    assert last_turn(location, tables.BRONZE, "q") == Turn("q", 3)
    assert last_turn(location, tables.BRONZE, "other") is None
