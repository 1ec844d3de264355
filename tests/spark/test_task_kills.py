"""`measures` and `upkeep`, the JVM with them, are killed at their commit points."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.api import package_key
from packhorse.blobs.open import open_blobs
from packhorse_services.pipeline.measures.changes import Sources
from packhorse_services.pipeline.measures.task import measure
from packhorse_services.pipeline.measures.writing import MeasuresTables
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import files_of
from packhorse_services.pipeline.upkeep import expiry
from packhorse_services.pipeline.upkeep.task import keep_up, plan
from tests.harness.measures import contents
from tests.harness.silver_rows import HOUR, START, announcement, append, package, status
from tests.harness.task_kills import Killed, broken_off, killed_task

pytestmark = pytest.mark.spark


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    place = Location.parse(str(tmp_path / "tables"))
    prepare(place)
    return place


def copied(location: Location, folder: str) -> Location:
    """Return a copy of the tables."""
    shutil.copytree(location.base, folder)
    return Location.parse(folder)


@pytest.fixture(scope="module")
def measured(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Location, dict[str, list[str]]]:
    """Tables that were measured once, with rows that came since; and what they come to."""
    location = Location.parse(str(tmp_path_factory.mktemp("measured") / "tables"))
    prepare(location)
    append(location, tables.PACKAGES, [package(1, 0), package(2, 2 * HOUR)])
    reported = [announcement(0, 0), announcement(1_000, 1), announcement(2 * HOUR + 1_000, 2)]
    append(location, tables.ANNOUNCEMENTS, reported)
    measure(spark, location)
    late = status(1, 3 * HOUR, "REMOVED_FAILED", reason="no")
    append(location, tables.STATUSES, [late])
    append(location, tables.PACKAGES, [package(3, 4 * HOUR)])
    whole = copied(location, f"{location.base}-whole")
    measure(spark, whole)
    return location, contents(whole)


@pytest.mark.depth
def test_measures_that_are_killed_come_to_the_same(
    spark: SparkSession, measured: tuple[Location, dict[str, list[str]]], tmp_path: Path
) -> None:
    location, expected = copied(measured[0], str(tmp_path / "tables")), measured[1]
    killed_task(location, "measures.writing:MeasuresTables.replace@after2", "measures")
    torn = contents(location)
    assert torn[tables.FAILURES] == expected[tables.FAILURES]
    assert torn[tables.DELIVERY] != expected[tables.DELIVERY]
    assert measure(spark, location) is not None, "it did not know that it had done all"
    assert contents(location) == expected


@pytest.mark.proof
def test_a_build_that_notes_its_measures_first_is_caught(
    spark: SparkSession,
    measured: tuple[Location, dict[str, list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    location, expected = copied(measured[0], str(tmp_path / "tables")), measured[1]

    def first(self: MeasuresTables, *_given: Any) -> None:
        self.note(Sources(spark, location).to_note())
        raise Killed

    monkeypatch.setattr(MeasuresTables, "replace", first)
    with pytest.raises(Killed):
        measure(spark, location)
    monkeypatch.undo()
    measure(spark, location)
    assert contents(location) != expected


DAYS = (30, 20, 1)
"""Ages of the packages; two have expired, each is in two files."""


def filled(spark: SparkSession, location: Location) -> None:
    """Add packages with bodies, both stored when the package was made."""
    blobs = open_blobs(location.blobs_url(tables.BODIES))
    now = datetime.now(UTC)
    for number, age in enumerate(DAYS):
        key = package_key(f"dstrpck-1-{number:016x}")
        blobs.put(key, [b"body"])
        then = (now - timedelta(days=age)).timestamp()
        os.utime(Path(location.base, tables.BODIES, key), (then, then))
        row = package(number, int(then * 1000) - START, body_reference=key)
        for _ in range(2):
            append(location, tables.PACKAGES, [row])
    blobs.close()


def kept(spark: SparkSession, location: Location) -> dict[str, Any]:
    """Return the packages, the files of each day, and the bodies. No package lacks its body."""
    rows = stored(location, tables.PACKAGES).to_pyarrow_table().to_pylist()
    blobs = open_blobs(location.blobs_url(tables.BODIES))
    there = sorted(blob.key for blob in blobs.list("packages/"))
    blobs.close()
    assert {row["body_reference"] for row in rows} <= set(there), "a package lacks its body"
    return {
        "offsets": sorted(row["offset"] for row in rows),
        "days": sorted((one.day, one.rows) for one in files_of(stored(location, tables.PACKAGES))),
        "bodies": there,
    }


def keep(spark: SparkSession, location: Location) -> None:
    planned = plan(spark, location, None, retention_days=8, measures_days=None)
    keep_up(spark, location, planned, lambda _: None)


@pytest.mark.parametrize("by", ["broken off", pytest.param("killed", marks=pytest.mark.depth)])
def test_upkeep_that_is_killed_comes_to_the_same(
    spark: SparkSession, location: Location, by: str
) -> None:
    filled(spark, location)
    whole = copied(location, f"{location.base}-whole")
    keep(spark, whole)
    expected = kept(spark, whole)
    assert (expected["offsets"], len(expected["bodies"])) == ([2, 2], 1)
    if by == "killed":
        command = ("upkeep", "--retention-days", "8", "--even-without-snapshot")
        killed_task(location, "upkeep.expiry:delete_bodies@before1", *command)
    else:
        with broken_off(expiry, "delete_bodies"):
            keep(spark, location)
    torn = kept(spark, location)
    assert (torn["offsets"], len(torn["bodies"])) == ([2, 2], 3)
    with broken_off(expiry, "vacuum", tables.PACKAGES):
        keep(spark, location)
    assert kept(spark, location) == expected, "rows and bodies are gone, the days compacted"
    keep(spark, location)
    assert kept(spark, location) == expected


@pytest.mark.proof
def test_a_build_that_deletes_bodies_before_rows_is_caught(
    spark: SparkSession, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(spark, location)

    def bodies_first(*_given: Any) -> None:
        young = spark.createDataFrame([], schemas.PACKAGES)
        url = location.blobs_url(tables.BODIES)
        eight_days_ago = (datetime.now(UTC) - timedelta(days=8)).timestamp() * 1000
        expiry.delete_bodies(
            expiry.expired_bodies(expiry.listed_bodies(spark, url), young, int(eight_days_ago)), url
        )
        raise Killed

    monkeypatch.setattr(expiry, "expire", bodies_first)
    with pytest.raises(Killed):
        keep(spark, location)
    with pytest.raises(AssertionError, match="lacks its body"):
        kept(spark, location)
