"""Upkeep: what goes, what stays, and that doing it again changes nothing."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.api import package_key
from packhorse.blobs.open import open_blobs
from packhorse.snapshots.snapshot import ContentSnapshot, new_id
from packhorse_services.pipeline.archive.places import Hole
from packhorse_services.pipeline.archive.start import record
from packhorse_services.pipeline.errors import TablesUnusable, TaskRefused
from packhorse_services.pipeline.storage import compaction, delta, schemas, tables
from packhorse_services.pipeline.storage.delta import load, prepare
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import files_of
from packhorse_services.pipeline.upkeep import expiry
from packhorse_services.pipeline.upkeep.expiry import Needed, covered, needed
from packhorse_services.pipeline.upkeep.task import expected, keep_up, plan
from tests.harness.silver_rows import HOUR, START, append, package, status

pytestmark = pytest.mark.spark

DAY = 24 * HOUR
NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)


def snapshot(offset: int, *, subscriber: str = "", journal_id: str = "j1") -> ContentSnapshot:
    return ContentSnapshot(new_id(), 1, journal_id, offset, "", ("main",), subscriber, 0, (), ())


@pytest.mark.parametrize(
    ("snapshots", "first"),
    [
        ([], Needed(date(2026, 1, 2), "main", 3)),
        ([snapshot(4), snapshot(3)], Needed(date(2026, 1, 2), "other", 5)),
        (
            [snapshot(9, subscriber="site"), snapshot(9, journal_id="j0")],
            Needed(date(2026, 1, 2), "main", 3),
        ),
    ],
)
def test_what_no_snapshot_for_everybody_holds_is_needed(
    spark: SparkSession, snapshots: list[ContentSnapshot], first: Needed
) -> None:
    rows = [
        package(7, 0, journal_id="gone"),
        package(3, DAY),
        package(4, DAY + 1),
        package(5, DAY + 2, publisher_agent="other"),
        package(6, 3 * DAY),
    ]
    packages = spark.createDataFrame(rows, schemas.PACKAGES)
    assert needed(packages, covered(packages, snapshots, [])) == first


def test_bodies_go_when_no_package_refers_to_them_and_they_are_old(spark: SparkSession) -> None:
    found = expiry.expired_bodies(
        spark.createDataFrame([("a", 1), ("b", 1), ("c", 9)], "key string, modified_ms long"),
        spark.createDataFrame([package(1, 0, body_reference="a"), package(2, 0)], schemas.PACKAGES),
        5,
    )
    assert [row["key"] for row in found.collect()] == ["b"]


def stored(location: Location, package_id: str) -> str:
    """Store a body, old by the store's clock; returns its key."""
    key = package_key(package_id)
    blobs = open_blobs(location.blobs_url(tables.BODIES))
    blobs.put(key, [b"body"])
    blobs.close()
    return key


def there(location: Location) -> list[str]:
    blobs = open_blobs(location.blobs_url(tables.BODIES))
    try:
        return sorted(blob.key for blob in blobs.list("packages/"))
    finally:
        blobs.close()


def test_expired_days_go_and_needed_ones_stay(spark: SparkSession, tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    prepare(location)
    # The bodies are stored now: a retention that begins a week after tomorrow finds them old.
    now = datetime.now(UTC) + timedelta(days=16)
    days = [(now - timedelta(days=age)).timestamp() * 1000 for age in (30, 20, 1)]
    keys = [stored(location, f"dstrpck-1-{number:016x}") for number in range(3)]
    for number, (moment, key) in enumerate(zip(days, keys, strict=True)):
        row = package(number, int(moment) - START, body_reference=key)
        for _ in range(2):  # two small files a day
            append(location, tables.PACKAGES, [row])

    many_holes(location)
    young = f"marks/mark-{int(days[2])}-00000000"
    for folder in ("audit/audit-1-00000000", "marks/mark-1-00000000", young, "audit/mine"):
        prepare(location, {f"{folder}/t": schemas.GAPS})

    wanted = {"retention_days": 8, "measures_days": None, "now": now}
    held = plan(spark, location, [snapshot(0)], **wanted)
    assert held.held_by is not None
    assert (held.held_by.offset, held.archive_from) == (1, (now - timedelta(days=20)).date())
    found = expected(spark, location, held)
    assert found == {
        **dict.fromkeys(found, 0),
        tables.PACKAGES: 2,
        "audits and marks": 2,
    }

    a_day_earlier = {**wanted, "now": now - timedelta(days=1)}
    younger = expected(spark, location, plan(spark, location, [snapshot(1)], **a_day_earlier))
    assert younger[tables.BODIES] == 0

    free = plan(spark, location, [snapshot(1)], **wanted)
    assert expected(spark, location, free)[tables.BODIES] == 2
    assert (free.held_by, free.archive_from) == (None, (now - timedelta(days=8)).date())
    said: list[str] = []
    with appending(spark, location, now) as appended:
        keep_up(spark, location, free, said.append)
    keep_up(spark, location, free, said.append)
    assert offsets(location) == sorted([2, 2, *appended])
    days = [one.day for one in files_of(delta.stored(location, tables.PACKAGES))]
    assert days.count((now - timedelta(days=1)).date()) == 1
    assert there(location) == [keys[2]]
    assert f"{tables.PACKAGES} has 1 files less" in said
    assert rewriting(location) == [{False}], "readers of changes need not read the rows again"
    holes = delta.stored(location, tables.GAPS)
    assert (len(holes.file_uris()), holes.to_pyarrow_table().num_rows) == (1, 10)
    left = [*Path(location.base).glob("audit/*"), *Path(location.base).glob("marks/*")]
    assert [str(one.relative_to(location.base)) for one in left] == ["audit/mine", young]


def many_holes(location: Location) -> None:
    """Note ten holes in files of their own, as runs of the archive do."""
    for first in range(0, 20, 2):
        record(location, [Hole("t", 0, first, first + 1)], {"t": "j1"})


def offsets(location: Location) -> list[int]:
    """Return those of the packages, in order."""
    held = delta.stored(location, tables.PACKAGES).to_pyarrow_table()
    return sorted(held.column("offset").to_pylist())


def rewriting(location: Location) -> list[set[bool]]:
    """Of each commit that puts files in the place of others: whether it says it changes rows."""
    logs = Path(location.base, tables.PACKAGES, "_delta_log").glob("*.json")
    commits = [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]
    found = []
    for actions in commits:
        changes = {
            kind: {one[kind]["dataChange"] for one in actions if kind in one}
            for kind in ("add", "remove")
        }
        if all(changes.values()):
            found.append(set.union(*changes.values()))
    return found


@contextmanager
def appending(spark: SparkSession, location: Location, now: datetime) -> Iterator[list[int]]:
    """Append a package after the other meanwhile; lends the list of their offsets."""
    appended: list[int] = []
    ending = threading.Event()

    def work() -> None:
        while not ending.wait(0.5) or not appended:
            offset = 100 + len(appended)
            row = package(offset, round(now.timestamp() * 1000) - START)
            rows = spark.createDataFrame([row], schemas.PACKAGES).coalesce(1)
            # Blind, as delta-rs is not: a commit that removes rows is no conflict.
            rows.write.format("delta").mode("append").save(location.spark_path(tables.PACKAGES))
            appended.append(offset)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            yield appended
        finally:
            ending.set()
            working.result()


def test_statuses_go_but_for_those_of_packages_not_imported(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    prepare(location)
    said = [
        status(1, 0),
        status(2, 0, "REMOVED_FAILED"),
        status(3, DAY),
        status(3, 9 * DAY, "REMOVED"),
        status(5, 0, "LEFT_OUT"),
    ]
    for row in [*said, status(2, DAY), status(4, 9 * DAY)]:
        append(location, tables.STATUSES, [row])
    there = load(spark, location, tables.STATUSES)
    assert expiry.expired_statuses(there, date(2026, 1, 5)).count() == 2

    files = []
    for _ in range(2):
        expiry.expire_statuses(spark, location, date(2026, 1, 5))
        held = delta.stored(location, tables.STATUSES)
        left = held.to_pyarrow_table().column("package_offset").to_pylist()
        assert sorted(left) == [2, 2, 3, 3, 4]
        files.append(sorted(held.file_uris()))
    assert files[0] == files[1]


def test_who_loses_against_another_upkeep_begins_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    prepare(location)
    for offset in (1, 2, 3):
        append(location, tables.PACKAGES, [package(offset, 0)])
    rewritten, runs = compaction._rewritten, []

    def meanwhile(*arguments: Any) -> Any:
        runs.append(arguments)
        if len(runs) == 1:  # another run does the same
            assert compaction.compact(spark, location, tables.PACKAGES, date(2026, 1, 15)) == 2
        return rewritten(*arguments)

    monkeypatch.setattr(compaction, "_rewritten", meanwhile)
    assert compaction.compact(spark, location, tables.PACKAGES, date(2026, 1, 15)) == 0
    assert len(runs) == 2
    assert offsets(location) == [1, 2, 3]


def test_a_retention_that_is_too_short_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    with pytest.raises(TaskRefused, match="at least 8 days"):
        plan(spark, location, [], retention_days=7, measures_days=None)
    with pytest.raises(TablesUnusable, match="run packhorse-pipeline archive first"):
        plan(spark, location, [], retention_days=8, measures_days=None, now=NOW)
