"""The archive's tables without Spark: made once, checked, and fenced by transaction versions."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from packhorse_services.pipeline.errors import Overtaken, SchemaChanged, TablesUnusable
from packhorse_services.pipeline.history.target import nothing_archived
from packhorse_services.pipeline.storage import delta, tables
from packhorse_services.pipeline.storage.delta import (
    ARCHIVE,
    BatchNumber,
    append,
    begin,
    last_turn,
    prepare,
)
from packhorse_services.pipeline.storage.location import Location


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
        BatchNumber("q", generation, batch).version
        for generation in (0, 1)
        for batch in (-1, 0, 2**31)
    ]
    assert versions == sorted(set(versions))
    assert BatchNumber.of("q", BatchNumber("q", 7, 41).version) == BatchNumber("q", 7, 41)


def test_tables_remember_the_turn_that_begins(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    assert last_turn(location, tables.BRONZE, "q") is None
    begin(location, [tables.BRONZE], BatchNumber("q", 3))
    assert last_turn(location, tables.BRONZE, "q") == BatchNumber("q", 3)
    assert last_turn(location, tables.BRONZE, "other") is None


class LostAnswer(deltalake.DeltaTable):
    """A commit is done, and its client, which heard nothing, tries it again and is refused."""

    def create_write_transaction(self, *given: Any, **options: Any) -> None:
        super().create_write_transaction(*given, **options)
        raise CommitFailedError("a concurrent transaction has committed")


class Late(deltalake.DeltaTable):
    """Another run commits the same turn a moment before."""

    def create_write_transaction(self, *given: Any, **options: Any) -> None:
        other = deltalake.DeltaTable(self.table_uri)
        mark = deltalake.Transaction(delta.application("q"), BatchNumber("q", 0, 1).version)
        theirs = deltalake.CommitProperties({"packhorse-commit": "theirs"}, app_transactions=[mark])
        other.create_write_transaction([], "append", other.schema(), commit_properties=theirs)
        super().create_write_transaction(*given, **options)


def test_a_commit_whose_answer_was_lost_is_not_another_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    begin(location, [tables.BRONZE], BatchNumber("q", 0))
    monkeypatch.setattr(deltalake, "DeltaTable", LostAnswer)
    append(location, tables.BRONZE, BatchNumber("q", 0, 0))
    assert last_turn(location, tables.BRONZE, "q") == BatchNumber("q", 0, 0)


def test_a_commit_that_another_run_was_first_with_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    begin(location, [tables.BRONZE], BatchNumber("q", 0))
    monkeypatch.setattr(delta, "stored", _late_once())
    with pytest.raises(Overtaken, match="another run works on the query q"):
        append(location, tables.BRONZE, BatchNumber("q", 0, 1))


def _late_once() -> Callable[[Location, str], deltalake.DeltaTable]:
    kinds = itertools.chain([Late], itertools.repeat(deltalake.DeltaTable))
    return lambda location, table: next(kinds)(location.delta_uri(table))


def test_an_archive_without_a_package_says_whether_it_ever_ran(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    never = "no package is archived yet; run packhorse-pipeline archive"
    assert nothing_archived(location) == never
    begin(location, [tables.BRONZE], BatchNumber("bronze", 0))
    assert nothing_archived(location) == never
    append(location, tables.BRONZE, BatchNumber("bronze", 0, 0))
    said = nothing_archived(location)
    assert said.startswith(
        "the archive has no package left: all have expired (upkeep's --retention"
    )
    assert said.endswith("as / as a deep path, and run packhorse-pipeline archive")
