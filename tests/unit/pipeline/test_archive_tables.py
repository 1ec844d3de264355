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
    APPLICATION,
    ARCHIVE,
    LAST,
    BatchMark,
    append,
    is_decoded,
    last_version,
    prepare,
    stored,
)
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import TOPICS


def test_tables_are_made_once(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    prepare(location)
    for name in ARCHIVE:
        assert deltalake.DeltaTable(location.delta_uri(name)).version() == 0
    bronze = deltalake.DeltaTable(location.delta_uri(tables.BRONZE))
    assert bronze.metadata().partition_columns == ["topic", "day"]


def test_the_log_of_a_table_is_short_for_a_continuous_archive(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    for name in ARCHIVE:
        found = stored(location, name).metadata().configuration
        assert found["delta.logRetentionDuration"] == "interval 8 days"


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


def test_tables_remember_the_last_batch(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    assert last_version(location, tables.BRONZE) is None
    append(location, tables.BRONZE, BatchMark(0, 7))
    assert last_version(location, tables.BRONZE) == 7
    assert last_version(location, tables.PACKAGES) is None


def test_silver_has_all_of_bronze_once_its_last_table_has_the_batch(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    assert is_decoded(location)
    append(location, tables.BRONZE, BatchMark(0, 7))
    append(location, tables.PACKAGES, BatchMark(0, 7))
    assert not is_decoded(location)
    append(location, LAST, BatchMark(0, 7))
    assert is_decoded(location)


class LostAnswer(deltalake.DeltaTable):
    """A commit is done, and its client, which heard nothing, tries it again and is refused."""

    def create_write_transaction(self, *given: Any, **options: Any) -> None:
        super().create_write_transaction(*given, **options)
        raise CommitFailedError("a concurrent transaction has committed")


class Late(deltalake.DeltaTable):
    """Another run commits a batch a moment before."""

    taken = 8

    def create_write_transaction(self, *given: Any, **options: Any) -> None:
        other = deltalake.DeltaTable(self.table_uri)
        mark = deltalake.Transaction(APPLICATION, self.taken)
        theirs = deltalake.CommitProperties({"packhorse-commit": "theirs"}, app_transactions=[mark])
        other.create_write_transaction([], "append", other.schema(), commit_properties=theirs)
        super().create_write_transaction(*given, **options)


def test_a_commit_whose_answer_was_lost_is_not_another_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    monkeypatch.setattr(deltalake, "DeltaTable", LostAnswer)
    append(location, tables.BRONZE, BatchMark(0, 7))
    assert last_version(location, tables.BRONZE) == 7


def test_a_commit_that_another_run_was_first_with_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    monkeypatch.setattr(delta, "stored", _late_once())
    with pytest.raises(Overtaken, match="another run of the archive has gone on with bronze"):
        append(location, tables.BRONZE, BatchMark(0, 7))


def test_the_same_batch_that_another_run_was_first_with_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    monkeypatch.setattr(Late, "taken", 7)
    monkeypatch.setattr(delta, "stored", _late_once())
    append(location, tables.BRONZE, BatchMark(0, 7))
    assert last_version(location, tables.BRONZE) == 7
    assert stored(location, tables.BRONZE).version() == 1


def _late_once() -> Callable[[Location, str], deltalake.DeltaTable]:
    kinds = itertools.chain([Late], itertools.repeat(deltalake.DeltaTable))
    return lambda location, table: next(kinds)(location.delta_uri(table))


def test_an_archive_without_a_package_says_whether_it_ever_ran(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    never = "no package is archived yet; run packhorse-pipeline archive"
    assert nothing_archived(location, TOPICS.package) == never
    append(location, tables.BRONZE, BatchMark(0, 7))
    said = nothing_archived(location, TOPICS.package)
    left = f"the archive has no package left in topic {TOPICS.package}"
    assert said.startswith(f"{left}: all have expired (upkeep's --retention")
    assert said.endswith("as / as a deep path, and run packhorse-pipeline archive")
