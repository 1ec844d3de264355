"""The task on real tables: only what is new, the same after repeats, kills and late rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.archive.delta import prepare
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.measures.task import measure
from tests.harness.silver_rows import HOUR, START, announcement, package, status

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

WRITTEN = {
    tables.PUBLISHING: schemas.PUBLISHING,
    tables.FAILURES: schemas.FAILURES,
    tables.SLOWEST: schemas.SLOWEST,
    tables.LANES: schemas.LANES,
    tables.DELIVERY: schemas.DELIVERY,
}


class Killed(Exception):
    """Stands for the end of the process."""


@dataclass(frozen=True)
class Dying(Location):
    """A place at which the process dies when it comes to one of the tables."""

    dies_at: str = ""

    def spark_path(self, name: str) -> str:
        if name == self.dies_at:
            raise Killed
        return Location.spark_path(self, name)


def append(spark: SparkSession, location: Location, name: str, rows: list[Any]) -> None:
    kinds = {
        tables.PACKAGES: schemas.PACKAGES,
        tables.STATUSES: schemas.STATUSES,
        tables.ANNOUNCEMENTS: schemas.ANNOUNCEMENTS,
    }
    frame = spark.createDataFrame(rows, kinds[name]).coalesce(1)
    frame.write.format("delta").mode("append").save(location.spark_path(name))


def contents(spark: SparkSession, location: Location) -> dict[str, list[str]]:
    found = {}
    for name in WRITTEN:
        rows = spark.read.format("delta").load(location.spark_path(name))
        found[name] = sorted(map(str, rows.toLocalIterator()))
    return found


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    place = Location.parse(str(tmp_path / "tables"))
    prepare(place)
    return place


def test_new_rows_change_their_hours_and_no_others(spark: SparkSession, location: Location) -> None:
    append(spark, location, tables.PACKAGES, [package(1, 0), package(2, 2 * HOUR)])
    append(
        *(spark, location, tables.ANNOUNCEMENTS),
        [announcement(0, 0), announcement(1_000, 1), announcement(2 * HOUR + 1_000, 2)],
    )
    made = measure(spark, location)
    assert made is not None
    assert made.begin_ms == START
    before = contents(spark, location)
    assert len(before[tables.DELIVERY]) == 2
    assert [measure(spark, location), contents(spark, location)] == [None, before]

    append(spark, location, tables.STATUSES, [status(1, 3 * HOUR, "REMOVED_FAILED", reason="no")])
    append(spark, location, tables.PACKAGES, [package(3, 4 * HOUR)])
    dying = Dying(location.base, dies_at=tables.DELIVERY)
    with pytest.raises(Killed):
        measure(spark, dying)
    torn = contents(spark, location)
    assert torn[tables.FAILURES] != before[tables.FAILURES]
    assert torn[tables.DELIVERY] == before[tables.DELIVERY]
    made = measure(spark, location)
    assert made is not None
    assert (made.since_ms, made.single_ms) == (START + 4 * HOUR, (START, START + 3 * HOUR))
    after = contents(spark, location)
    assert len(after[tables.DELIVERY]) == 3
    assert set(after[tables.DELIVERY]) & set(before[tables.DELIVERY])

    measure(spark, location, all_hours=True)
    assert contents(spark, location) == after


def test_without_an_archive_there_is_nothing_to_measure(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(TaskRefused, match="run packhorse-pipeline archive first"):
        measure(spark, Location.parse(str(tmp_path / "none")))
