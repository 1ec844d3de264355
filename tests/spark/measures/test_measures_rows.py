"""Each transformation of the measures, row by row."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse_services.pipeline.measures import announced, changes, hourly, outcomes
from packhorse_services.pipeline.measures.hourly import backlog
from packhorse_services.pipeline.measures.times import day_of, hour_of
from packhorse_services.pipeline.storage import schemas
from tests.harness.silver_rows import HOUR, START, announcement, at, package, status

pytestmark = pytest.mark.spark

Case = tuple[list[Any], list[Any], list[Any], list[tuple[str, int, str, int, int]]]
"""Packages, statuses, announcements, and what became of them."""


def frame(spark: SparkSession, rows: list[Any], schema: Any) -> DataFrame:
    return spark.createDataFrame(rows, schema)


def moment(moment_ms: int) -> Column:
    return f.timestamp_millis(f.lit(START + moment_ms))


def rows_of(spark: SparkSession, rows: list[Any], before: list[Any] | None = None) -> DataFrame:
    return announced.subscription_rows(
        frame(spark, rows, schemas.ANNOUNCEMENTS), frame(spark, before or [], schemas.SUBSCRIPTIONS)
    )


def before(**changed: Any) -> dict[str, Any]:
    """Return a row of `schemas.SUBSCRIPTIONS` from the hour before `START`."""
    return {
        "subscriber": "site",
        "publisher_agent": "main",
        "journal_id": "j1",
        "day": at(-HOUR).date(),
        "hour": at(-HOUR),
        "announced_ms": START - 5_000,
        "sequence": 0,
        "offset": 1,
        "reached": 1,
        "retries": 0,
        "blocked": False,
        "editable": False,
        **changed,
    }


TIMES = [
    (-START, 3_000, 3_000, 2_000),  # never said
    (10**12, 3_000, 3_000, 2_000),  # another century
    (500, 10**12, 5_000, 4_500),  # the same of the status: its record's time
    (1_000, 400, 1_000, 0),  # imported before it was there
    (500, -START - 5, 5_000, 4_500),
    (-9 * 24 * HOUR, 3_000, 3_000, 2_000),  # too long ago to be believed
    (-6 * 24 * HOUR, 3_000, 3_000, 6 * 24 * HOUR + 3_000),
]
"""Accepted and decided, and what is believed: the outcome and the latency."""
CASES: Mapping[str, Case] = {
    "an editable subscriber reports when it imported": (
        [package(1, 2_000, accepted_ms=1_000), package(2, 2_000)],
        [status(1, 9_000, decided_ms=5_000), status(1, 9_500, decided_ms=5_000)],
        [announcement(0, 0, editable=True), announcement(10_000, 2, editable=True)],
        [("site", 1, "IMPORTED", 5_000, 4_000)],
    ),
    "others have imported what their first announcement above says": (
        [package(number, number * 1_000) for number in range(1, 6)],
        [status(3, 9_000, "REMOVED_FAILED", reason="no")],
        [announcement(*one) for one in ((0, 0), (6_000, 2), (9_000, 4), (9_500, 1))],
        [
            ("site", 1, "IMPORTED", 6_000, 5_000),
            ("site", 2, "IMPORTED", 6_000, 4_000),
            ("site", 3, "REMOVED_FAILED", 9_000, 6_000),
            ("site", 4, "IMPORTED", 9_000, 5_000),
        ],
    ),
    "what a subscription began behind and what it had before is not its delivery": (
        [package(1, 0), package(2, 100_000), package(3, 105_000), package(4, 200_000)],
        [],
        [
            announcement(106_000, 3, subscriber="late", started_offset=2),
            announcement(201_000, 4, subscriber="late", started_offset=2),
            announcement(106_000, 3, subscriber="unknown"),
        ],
        [
            ("late", 3, "IMPORTED", 106_000, 1_000),
            ("late", 4, "IMPORTED", 201_000, 1_000),
            ("unknown", 2, "IMPORTED", 106_000, 6_000),
            ("unknown", 3, "IMPORTED", 106_000, 1_000),
        ],
    ),
    "other journals and agents are other subscriptions": (
        [package(1, 1_000), package(2, 1_000, journal_id="j2"), package(3, 0, publisher_agent="b")],
        [status(1, 2_000, package_journal_id="j2"), status(2, 2_000, publisher_agent="b")],
        [announcement(0, 0), announcement(3_000, 3), announcement(4_000, 3, journal_id="")],
        [("site", 1, "IMPORTED", 3_000, 2_000)],
    ),
    "times that cannot be true are their records": (
        [package(number, 1_000, accepted_ms=one[0]) for number, one in enumerate(TIMES)],
        [status(number, 5_000, decided_ms=one[1]) for number, one in enumerate(TIMES)],
        [],
        [("site", number, "IMPORTED", *one[2:]) for number, one in enumerate(TIMES)],
    ),
}


@pytest.fixture(scope="module")
def happened(spark: SparkSession) -> dict[str, list[Any]]:
    """What each case leads to: all are in the same tables, with publisher agents of their own."""
    packages, statuses, announcements = list[Any](), list[Any](), list[Any]()
    for name, case in CASES.items():
        for into, rows in zip((packages, statuses, announcements), case, strict=False):
            for row in rows:
                for named in row.get("subscriptions", [row]):
                    named["publisher_agent"] += f" of {name}"
            into.extend(rows)
    found = outcomes.outcomes(
        rows_of(spark, announcements),
        frame(spark, statuses, schemas.STATUSES),
        frame(spark, packages, schemas.PACKAGES),
    ).select("publisher_agent", "subscriber", "offset", "status", "outcome_ms", "latency_ms")
    sorted_rows = sorted((*row[:4], row[4] - START, row[5]) for row in found.collect())
    return {
        name: [row[1:] for row in sorted_rows if row[0].endswith(f" of {name}")] for name in CASES
    }


@pytest.mark.parametrize("case", CASES)
def test_outcomes(case: str, happened: dict[str, list[Any]]) -> None:
    assert happened[case] == CASES[case][3]


def test_the_hour_is_that_of_utc_in_any_time_zone(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        rows = spark.range(1).selectExpr(f"{START + HOUR - 1} AS ms")
        found = rows.withColumn("hour", hour_of(rows["ms"]))
        row = found.selectExpr("unix_millis(hour)").first()
        day = found.select(day_of(found["hour"]).cast("string")).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert row is not None
    assert (row[0], day and day[0]) == (START, "2026-01-01")


def test_time_blocked_is_cut_at_the_hour_and_ends_with_silence(spark: SparkSession) -> None:
    rows = rows_of(
        spark,
        [
            announcement(HOUR - 15_000, 1, blocked_since_ms=START + 1, retries=1),
            announcement(HOUR - 5_000, 1, state="BLOCKED", retries=3),
            announcement(HOUR + 5_000, 1, state="BLOCKED", retries=3),
            announcement(HOUR + 9_000, 2),
            announcement(HOUR + 20_000, 2, state="PAUSED", blocked_since_ms=START),
            announcement(2 * HOUR - 10_000, 2, state="BLOCKED"),
        ],
        [before(blocked=True)],
    )
    found = announced.blocked_hours(rows).select("hour", "blocked_ms").collect()
    assert {row[0].timestamp() * 1000 - START: row[1] for row in found} == {
        -HOUR: 5_000,
        0: 25_000 + 15_000,
        HOUR: 9_000 + 10_000,
        2 * HOUR: 20_000,
    }


def test_failed_attempts_are_what_retries_rose_by(spark: SparkSession) -> None:
    rows = rows_of(
        spark,
        [
            announcement(1_000, 1, retries=3, last_error="a"),
            announcement(2_000, 1, retries=3, last_error="a"),
            announcement(3_000, 1, retries=5, last_error="b"),
            announcement(4_000, 2, retries=1, last_error="b"),
            announcement(5_000, 3),
        ],
        [before(retries=2)],
    )
    found = announced.failed_attempts(rows).select("reason", "count").collect()
    assert sorted(map(tuple, found)) == [("a", 1), ("b", 3)]


def test_each_attempt_of_a_package_that_was_given_up_counts_once(spark: SparkSession) -> None:
    packages = spark.createDataFrame([package(n, 0) for n in range(1, 5)], schemas.PACKAGES)
    given_up = [status(n, 9_000, "REMOVED_FAILED", reason="gone", attempts=3) for n in (2, 3, 4)]
    reports = [
        announcement(1_000, 0, retries=2, last_error="of 1"),  # which was imported then
        announcement(2_000, 1, retries=1, last_error="of 2"),
        announcement(3_000, 2, retries=3, last_error="of 3"),  # all of them were announced
    ]
    rows = rows_of(spark, reports)
    statuses = spark.createDataFrame(given_up, schemas.STATUSES)
    happened = outcomes.outcomes(rows, statuses, packages)
    found = hourly.failures(happened, rows, packages).select("reason", "count").collect()
    assert sorted(map(tuple, found)) == [("gone", 2 + 0 + 3), ("of 1", 2), ("of 2", 1), ("of 3", 3)]


def test_subscriptions_of_an_hour_know_how_far_they_ever_came(spark: SparkSession) -> None:
    rows = rows_of(
        spark,
        [announcement(1_000, 9, retries=1), announcement(2_000, 4), announcement(HOUR, 5)],
        [before(offset=7, reached=7)],
    )
    hours = announced.subscription_hours(rows)
    found = hours.select("hour", "offset", "reached")
    assert sorted(map(tuple, found.toLocalIterator())) == [
        (at(0).replace(tzinfo=None), 4, 9),
        (at(HOUR).replace(tzinfo=None), 5, 9),
    ]
    last = announced.last_before(hours, moment(HOUR))
    assert [row["offset"] for row in last.collect()] == [4]


def test_backlog_is_what_was_there_at_the_hours_end(spark: SparkSession) -> None:
    rows = rows_of(spark, [announcement(1_000, 1), announcement(2_000, 2), announcement(HOUR, 4)])
    packages = [package(number, number * 1_000) for number in range(1, 5)]
    packages += [package(5, HOUR), package(6, 2 * HOUR), package(7, 1_000, publisher_agent="b")]
    known = outcomes.facts(frame(spark, packages, schemas.PACKAGES))
    found = backlog(announced.subscription_hours(rows), known)
    assert sorted(found.select("backlog_end").collect()) == [(1,), (2,)]
    assert found.where("backlog_end = 2").count() == 1


def test_publishing_counts_by_the_journals_hour(spark: SparkSession) -> None:
    rows = [
        package(1, 1_000, accepted_ms=0),
        package(2, 2_000, accepted_ms=-1_000, action="DELETE", body_length=0, node_count=0),
        package(3, HOUR, action="TEST"),
    ]
    found = hourly.publishing(frame(spark, rows, schemas.PACKAGES)).orderBy("hour").collect()
    first = found[0].asDict()
    assert first | {"day": None, "hour": None} == {
        "publisher_agent": "main",
        "day": None,
        "hour": None,
        "packages": 2,
        "adds": 1,
        "deletes": 1,
        "invalidates": 0,
        "tests": 0,
        "bytes": 100,
        "nodes": 3,
        "latency_max_ms": 3_000,
        "latency_p50_ms": 2_000,
        "latency_p95_ms": 2_900,
        "latency_p99_ms": 2_980,
    }
    assert [row["packages"] for row in found] == [2, 1]


def test_a_late_status_names_the_earliest_hour_that_it_changes(spark: SparkSession) -> None:
    subscriptions = [
        before(hour=at(0), offset=3, reached=3),
        before(hour=at(HOUR), offset=9, reached=9),
        before(hour=at(2 * HOUR), offset=9, reached=9),
    ]
    statuses = [
        status(5, 8 * HOUR, decided_ms=4 * HOUR),
        status(5, 6 * HOUR, decided_ms=6 * HOUR),
        status(6, 7 * HOUR),
    ]
    known = [package(5, 0), package(6, 0)]

    def changed(subscriptions: list[dict[str, Any]]) -> int | None:
        return changes.earliest_decided(
            frame(spark, statuses[:1], schemas.STATUSES),
            frame(spark, statuses, schemas.STATUSES),
            frame(spark, known, schemas.PACKAGES),
            frame(spark, subscriptions, schemas.SUBSCRIPTIONS),
        )

    assert changed(subscriptions) == START + HOUR
    assert changed(subscriptions[:1]) == START + 4 * HOUR
    statuses[0] = status(5, 8 * HOUR, decided_ms=7 * HOUR)
    assert changed([]) == START + 6 * HOUR
