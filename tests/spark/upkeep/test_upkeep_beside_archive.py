"""Upkeep beside a running archive on one S3 location: nothing is lost, and nothing is there twice.

On S3 only a conditional put keeps one writer's commit from overwriting another's. Spark's own log
store looks first and writes afterwards.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from packhorse_services.pipeline.storage import compaction, tables
from packhorse_services.pipeline.storage.delta import prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File
from packhorse_services.pipeline.storage.table_files import Kept
from packhorse_services.pipeline.upkeep.task import keep_up, plan
from tests.harness.archive_site import ArchiveSite, archive_site, on_s3
from tests.harness.blind_commit import commit_blindly
from tests.harness.s3 import S3Server
from tests.harness.upkeep import ROUNDS, require_whole, tomorrow

pytestmark = pytest.mark.spark


@pytest.fixture
def site(
    spark: SparkSession, database_url: str, tmp_path: Path, s3: S3Server
) -> Iterator[ArchiveSite]:
    with (
        archive_site(spark, database_url, tmp_path) as folder,
        on_s3(folder, s3, f"upkeep-{tmp_path.name}") as found,
    ):
        yield found


@pytest.mark.depth  # below the archive commits amid a compaction, in each run of the tests
def test_r3_archive_and_upkeep_at_the_same_time(site: ArchiveSite) -> None:
    prepare(site.location)
    ending, said = threading.Event(), list[str]()

    def keep() -> None:
        while not ending.is_set():
            planned = plan(
                *(site.spark, site.location, None),
                retention_days=30,
                measures_days=None,
                now=tomorrow(),
            )
            keep_up(site.spark, site.location, planned, said.append)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(keep)
        try:
            for number in range(ROUNDS):
                site.fill(range(number * 5, number * 5 + 5), "package", "status", "event")
                site.archive()
        finally:
            ending.set()
            working.result()
    require_whole(site)
    assert stored(site.location, tables.BRONZE).transaction_version("packhorse-upkeep")


Replace = Callable[[Location, str, DeltaTable, Sequence[Kept], Sequence[File]], None]


def compact_while_archiving(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, replace: Replace | None
) -> None:
    """Let the archive commit between upkeep's look at the table and its commit."""
    site.fill(range(2), "package")
    site.archive(max_offsets=1)  # a file each
    rewritten = compaction._rewritten

    def meanwhile(*arguments: Any) -> list[File]:
        monkeypatch.setattr(compaction, "_rewritten", rewritten)
        site.fill([2], "package")
        site.archive()
        return rewritten(*arguments)

    monkeypatch.setattr(compaction, "_rewritten", meanwhile)
    if replace is not None:
        monkeypatch.setattr(compaction, "replace", replace)
    before = tomorrow().date()
    assert compaction.compact(site.spark, site.location, tables.BRONZE, before) == 1


def test_what_the_archive_adds_during_a_compaction_stays(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_while_archiving(site, monkeypatch, None)
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0, 1, 2]


@pytest.mark.proof
def test_a_build_whose_commits_overwrite_is_caught(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(
        location: Location,
        _table: str,
        held: DeltaTable,
        gone: Sequence[Kept],
        added: Sequence[File],
    ) -> None:
        commit_blindly(location, held, gone, [one.action for one in added])

    compact_while_archiving(site, monkeypatch, overwrite)
    with pytest.raises(AssertionError):
        site.require_equal_sets()


def test_shares_have_no_more_files_than_a_compaction_leaves() -> None:
    sizes = [1, 70, 140, 3, 128, 127, 1]
    files = [
        Kept(f"f{number}", size * 2**20, 1, {"day": date(2026, 1, 1).isoformat()}, number)
        for number, size in enumerate(sizes)
    ]
    shared = compaction.shares(reversed(files))
    assert [one.first for share in shared for one in share] == list(range(7))
    assert [len(share) for share in shared] == [3, 2, 2]
