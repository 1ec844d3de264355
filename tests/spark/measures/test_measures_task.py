"""The task on real tables: only what is new, the same after repeats, kills and late rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from packhorse_services.pipeline.errors import TablesUnusable
from packhorse_services.pipeline.measures import changes
from packhorse_services.pipeline.measures.task import measure
from packhorse_services.pipeline.measures.writing import MeasuresTables
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.upkeep.expiry import expire, expire_statuses
from tests.harness.measures import contents
from tests.harness.silver_rows import HOUR, START, announcement, append, package, status

pytestmark = pytest.mark.spark

DAY = 24 * HOUR

WRITTEN = {
    tables.PUBLISHING: schemas.PUBLISHING,
    tables.FAILURES: schemas.FAILURES,
    tables.SLOWEST: schemas.SLOWEST,
    tables.SUBSCRIPTIONS: schemas.SUBSCRIPTIONS,
    tables.DELIVERY: schemas.DELIVERY,
}


class Killed(Exception):
    """Stands for the end of the process."""


@contextmanager
def dying(table: str) -> Iterator[None]:
    """Let the process die when it comes to write one of the tables."""
    replace = MeasuresTables.replace

    def die(self: MeasuresTables, name: str, *given: Any) -> None:
        if name == table:
            raise Killed
        replace(self, name, *given)

    with patch.object(MeasuresTables, "replace", die), pytest.raises(Killed):
        yield


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    place = Location.parse(str(tmp_path / "tables"))
    prepare(place)
    return place


def expire_two_days(spark: SparkSession, location: Location) -> None:
    first = date(2026, 1, 3)
    for table in (tables.PACKAGES, tables.ANNOUNCEMENTS):
        expire(location, table, first)
    expire_statuses(spark, location, first)  # the failure stays


def test_new_rows_change_their_hours_and_no_others_which_stay_when_their_rows_expire(
    spark: SparkSession, location: Location
) -> None:
    append(
        location,
        tables.PACKAGES,
        [package(1, HOUR), package(2, 2 * DAY), package(3, 2 * DAY + 2 * HOUR)],
    )
    append(location, tables.STATUSES, [status(1, 2 * HOUR, "REMOVED_FAILED", reason="no")])
    announced = [(0, 0), (3 * HOUR, 1), (2 * DAY + 1_000, 2), (2 * DAY + 2 * HOUR + 1_000, 3)]
    append(location, tables.ANNOUNCEMENTS, [announcement(*one) for one in announced])
    assert measure(spark, location) == START
    before = contents(location)
    assert len(before[tables.DELIVERY]) == 5
    assert [measure(spark, location), contents(location)] == [None, before]

    failed = status(2, 2 * DAY + 3 * HOUR, "REMOVED_FAILED", reason="no")
    append(location, tables.STATUSES, [failed])
    append(location, tables.PACKAGES, [package(4, 2 * DAY + 4 * HOUR)])
    with dying(tables.DELIVERY):
        measure(spark, location)
    torn = contents(location)
    assert torn[tables.FAILURES] != before[tables.FAILURES]
    assert torn[tables.DELIVERY] == before[tables.DELIVERY]
    day = START + 2 * DAY
    assert measure(spark, location) == day, "the hour in which package 2 had been announced"
    after = contents(location)
    assert len(after[tables.DELIVERY]) == 6
    assert set(after[tables.DELIVERY]) & set(before[tables.DELIVERY])

    expire_two_days(spark, location)
    assert measure(spark, location, all_hours=True) == day
    assert contents(location) == after


def test_without_an_archive_there_is_nothing_to_measure(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(TablesUnusable, match="run packhorse-pipeline archive first"):
        measure(spark, Location.parse(str(tmp_path / "none")))


def expired_and_measured(spark: SparkSession, location: Location) -> Any:
    """Measure, expire two days, measure all hours; return the contents before."""
    append(location, tables.PACKAGES, [package(0, HOUR), package(1, HOUR), package(2, 2 * DAY)])
    failed = status(1, 2 * HOUR, "REMOVED_FAILED", reason="no")
    late = status(0, 2 * DAY + 5 * HOUR)
    append(location, tables.STATUSES, [failed, status(2, 2 * DAY + HOUR), late])
    announced = [(0, 0), (3 * HOUR, 1), (2 * DAY + 2 * HOUR, 2), (2 * DAY + 6 * HOUR, 2)]
    append(location, tables.ANNOUNCEMENTS, [announcement(*one) for one in announced])
    measure(spark, location)
    before = contents(location)
    expire_two_days(spark, location)
    measure(spark, location, all_hours=True)
    return before


@pytest.mark.depth
def test_new_rows_change_no_hours_whose_rows_or_packages_have_expired(
    spark: SparkSession, location: Location
) -> None:
    before = expired_and_measured(spark, location)
    append(location, tables.STATUSES, [status(2, 2 * DAY + 3 * HOUR, "REMOVED")])
    append(location, tables.ANNOUNCEMENTS, [announcement(3 * DAY, 2)])
    measure(spark, location)
    after = contents(location)
    assert set(before[tables.PUBLISHING]) == set(after[tables.PUBLISHING])
    assert set(before[tables.FAILURES]) <= set(after[tables.FAILURES])
    assert set(before[tables.DELIVERY]) <= set(after[tables.DELIVERY])
    assert before[tables.SLOWEST] == after[tables.SLOWEST]


def test_hours_behind_packages_that_have_all_expired_stay(
    spark: SparkSession, location: Location
) -> None:
    append(location, tables.PACKAGES, [package(0, HOUR), package(1, HOUR)])
    append(location, tables.STATUSES, [status(0, 2 * DAY + HOUR)])
    reported = 2 * DAY + 2 * HOUR
    announced = [(0, -1), (reported, 0), (reported + 10_000, 1), (reported + 3 * HOUR, 1)]
    append(location, tables.ANNOUNCEMENTS, [announcement(*one) for one in announced])
    measure(spark, location)
    before = contents(location)
    expire_two_days(spark, location)
    assert measure(spark, location, all_hours=True) == START + reported + HOUR
    assert contents(location) == before


@pytest.mark.proof
def test_a_build_that_makes_expired_hours_anew_is_caught(
    spark: SparkSession, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "made_from", lambda _, __, since_ms: since_ms)
    before = expired_and_measured(spark, location)
    assert contents(location) != before
