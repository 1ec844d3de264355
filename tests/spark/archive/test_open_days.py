"""A continuous archive puts the files of the day that it writes together, and loses nothing."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.storage import compaction, tables
from packhorse_services.pipeline.storage.delta import LAST, stored
from packhorse_services.pipeline.storage.table_files import files_of
from tests.harness.archive_site import ArchiveSite, archive_site

pytestmark = pytest.mark.spark

BATCHES = 12
MANY = 6


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(spark, database_url, tmp_path) as found:
        yield found


def test_a_merge_that_fails_ends_no_archive(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_args: object, **_named: object) -> None:
        raise CommitFailedError("another writer came first")

    monkeypatch.setattr(compaction.OpenDays, "_merged", refused)
    stop, done = threading.Event(), list[str]()

    def until_third(point: str) -> None:
        if point == f"after {LAST}":
            done.append(point)
            site.fill([len(done)], "package")
            if len(done) == 3:
                stop.set()

    site.fill([0], "package")
    choices = Choices(continuous=True, interval_s=0, open_files=1)
    site.archive(choices, reached=until_third, stop=stop)
    assert "small files of the open day were not merged" in caplog.text
    assert site.places(tables.PACKAGES) == [0, 1, 2]


def test_a_continuous_archive_leaves_few_files_of_an_open_day(
    site: ArchiveSite,
) -> None:
    stop, done = threading.Event(), list[str]()

    def more(point: str) -> None:
        if point == f"after {LAST}":
            done.append(point)
            if len(done) == BATCHES:
                stop.set()
            else:
                site.fill([len(done)], "package", "status")

    site.fill([0], "package")
    site.archive(Choices(continuous=True, interval_s=0, open_files=MANY), reached=more, stop=stop)
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == list(range(BATCHES))
    for table in (tables.BRONZE, tables.PACKAGES):
        days = Counter(one.day for one in files_of(stored(site.location, table)))
        assert max(days.values()) <= MANY, f"{table} has {days}"
