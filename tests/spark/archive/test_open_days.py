"""A continuous archive puts the files of the day that it writes together, and loses nothing."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.storage import compaction, tables
from packhorse_services.pipeline.storage.delta import LAST, stored
from packhorse_services.pipeline.storage.table_files import files_of
from tests.harness.archive_site import ArchiveSite, archive_site

pytestmark = pytest.mark.spark

BATCHES = 9
MANY = 6
WATCHED = {tables.BRONZE, tables.PACKAGES}


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(spark, database_url, tmp_path) as found:
        yield found


def test_a_continuous_archive_leaves_few_files_of_an_open_day_also_when_a_merge_fails(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    merged = compaction.OpenDays._merged
    stop, done = threading.Event(), list[str]()
    failed, succeeded = list[str](), set[str]()

    def failing_first(days: compaction.OpenDays, table: str, day: date) -> int:
        if table in failed:
            succeeded.add(table)
            return merged(days, table, day)
        failed.append(table)
        if len(failed) > 1:
            raise Py4JError("a call of the JVM failed")
        raise CommitFailedError("another writer came first")

    def more(point: str) -> None:
        if point == f"after {LAST}":
            done.append(point)
            if len(done) >= BATCHES and succeeded >= WATCHED:  # later where midnight comes between
                stop.set()
            else:
                site.fill([len(done)], "package", "status")

    monkeypatch.setattr(compaction.OpenDays, "_merged", failing_first)
    site.fill([0], "package")
    site.archive(Choices(continuous=True, interval_s=0, open_files=MANY), reached=more, stop=stop)
    assert set(failed) >= WATCHED
    assert "small files of the open day were not merged" in caplog.text
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == list(range(len(done)))
    for table in WATCHED:
        days = Counter(one.day for one in files_of(stored(site.location, table)))
        assert days[max(days)] <= MANY, f"{table} has {days}"
