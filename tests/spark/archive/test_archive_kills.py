"""The archive breaks off at each of its commit points, again and again, and loses nothing."""

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from packhorse_services.pipeline.archive import query
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import BatchMark, stored
from packhorse_services.pipeline.storage.location import Location
from tests.harness.archive_site import ArchiveSite, archive_site

pytestmark = pytest.mark.spark

POINTS = (
    f"after {tables.PACKAGES}",
    "after bronze",
    "before bronze",
    f"before {tables.PACKAGES}",
    f"after {tables.STATUSES}",
)
KILLS = int(os.environ.get("TEST_ARCHIVE_KILLS", "1"))
"""The first so many points, round and round; `make chaos` has 20."""


class BrokenOffError(Exception):
    """What a kill looks like from inside."""


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(spark, database_url, tmp_path) as found:
        yield found


def broken_off(site: ArchiveSite, point: str) -> None:
    """Run the archive until it reaches `point`."""

    def reached(here: str) -> None:
        if here == point:
            raise BrokenOffError(point)

    with pytest.raises(TaskFailed, match=point):
        site.archive(reached=reached)


@pytest.mark.timeout(1800)  # forty queries on a busy machine
def test_kills_at_commit_points(site: ArchiveSite) -> None:
    points = itertools.islice(itertools.cycle(POINTS), KILLS)
    for number, point in enumerate(points):
        site.fill([number], "package", "status")
        broken_off(site, point)
    site.archive()
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == list(range(KILLS))
    statuses = sorted(row["package_offset"] for row in site.rows(tables.STATUSES))
    assert statuses == list(range(KILLS))


@pytest.mark.depth
def test_a_process_that_begins_too_late_for_spark_ends_no_run(
    site: ArchiveSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives up after 10 s, as it does on a busy machine."""
    late, been = tmp_path / "late", tmp_path / "been"
    planning = f"*python_streaming_source_runner*) mkdir {been} && exec sleep 30;;"
    late.write_text(f'#!/bin/sh\ncase "$*" in {planning} esac\nexec {sys.executable} "$@"\n')
    late.chmod(0o700)
    monkeypatch.setattr(site.spark.sparkContext, "pythonExec", str(late))
    site.fill([0], "package")
    site.archive()
    assert been.is_dir()
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0]


def append_again(
    location: Location, table: str, _mark: BatchMark, files: Sequence[AddAction] = ()
) -> None:
    """Append as a build would that forgot the transaction's id."""
    held = stored(location, table)
    held.create_write_transaction(list(files), mode="append", schema=held.schema())


@pytest.mark.proof
def test_a_build_without_transaction_ids_is_caught(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.fill([0], "package")
    site.archive()
    monkeypatch.setattr(query, "append", append_again)
    site.fill([1], "package")
    with suppress(TaskFailed):
        broken_off(site, "after bronze")
    site.archive()
    with pytest.raises(AssertionError, match="twice"):
        site.require_equal_sets()
