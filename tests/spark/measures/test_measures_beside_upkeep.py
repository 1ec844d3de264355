"""Measures beside an upkeep, an archive and a second run on one S3 location: nothing is lost.

On S3 only a conditional put keeps one writer's commit from overwriting another's.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse_services.pipeline.errors import Overtaken
from packhorse_services.pipeline.measures import writing
from packhorse_services.pipeline.measures.task import measure
from packhorse_services.pipeline.measures.writing import MeasuresTables
from packhorse_services.pipeline.storage import compaction, delta, schemas, tables
from packhorse_services.pipeline.storage.delta import prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File
from packhorse_services.pipeline.storage.table_files import files_of, whole_from
from packhorse_services.pipeline.upkeep.expiry import expire
from packhorse_services.pipeline.upkeep.task import keep_up, plan
from tests.harness.archive_site import ArchiveSite, archive_site, on_s3
from tests.harness.blind_commit import commit_blindly
from tests.harness.measures import contents
from tests.harness.s3 import S3Server
from tests.harness.silver_rows import HOUR, START, announcement, append, at, package
from tests.harness.upkeep import ROUNDS, require_whole, tomorrow

pytestmark = pytest.mark.spark

DAY = 24 * HOUR
SECOND = date(2026, 1, 2)


@pytest.fixture
def site(
    spark: SparkSession, database_url: str, tmp_path: Path, s3: S3Server
) -> Iterator[ArchiveSite]:
    with (
        archive_site(spark, database_url, tmp_path) as folder,
        on_s3(folder, s3, f"measures-{tmp_path.name}") as found,
    ):
        yield found


@pytest.mark.depth  # below, and in `test_upkeep_beside_archive.py`, one commits amid another's work
def test_r3_archive_measures_and_upkeep_at_the_same_time(site: ArchiveSite) -> None:
    prepare(site.location)
    ending = threading.Event()

    def keep() -> None:
        planned = plan(
            *(site.spark, site.location, None),
            retention_days=30,
            measures_days=30,
            now=tomorrow(),
        )
        keep_up(site.spark, site.location, planned, lambda _: None)

    def again(work: Callable[[], object]) -> None:
        while not ending.is_set():
            work()

    with ThreadPoolExecutor(2) as threads:
        works = (keep, lambda: measure(site.spark, site.location))
        working = [threads.submit(again, work) for work in works]
        try:
            for number in range(ROUNDS):
                site.fill(range(number * 5, number * 5 + 5), "package", "status", "event")
                site.archive()
        finally:
            ending.set()
            for one in working:
                one.result()
    require_whole(site)
    measure(site.spark, site.location)
    found = contents(site.location)
    published = stored(site.location, tables.PUBLISHING).to_pyarrow_table()
    assert sum(published.column("packages").to_pylist()) == 5 * ROUNDS
    measure(site.spark, site.location, all_hours=True)
    assert contents(site.location) == found


@contextmanager
def before_commit_of(table: str, work: Callable[[], object]) -> Iterator[list[str]]:
    """Let others work once between the run's look at a table and its commit; lends the writes."""
    write, writes = writing.written, list[str]()

    def written(rows: Any, location: Location, does: Any) -> Any:
        name = next(one for one in delta.MEASURES if set(rows.columns) == columns(one))
        writes.append(name)
        if writes.count(table) == 1 and name == table:
            work()
        return write(rows, location, does)

    with patch.object(writing, "written", written):
        yield writes


def columns(table: str) -> set[str]:
    return set(delta.MEASURES[table].names)


def measured(site: ArchiveSite) -> None:
    """Measure two days, and add to the second one."""
    prepare(site.location)
    append(site.location, tables.PACKAGES, [package(1, 0), package(2, DAY)])
    append(site.location, tables.ANNOUNCEMENTS, [announcement(1_000, 1)])
    measure(site.spark, site.location)
    append(site.location, tables.PACKAGES, [package(3, DAY + 5 * HOUR)])


def published(site: ArchiveSite) -> list[tuple[str, int]]:
    """Return the agents and hours, from 2026 on, in which something was published."""
    rows = stored(site.location, tables.PUBLISHING).to_pyarrow_table().to_pylist()
    return sorted(
        (row["publisher_agent"], (round(row["hour"].timestamp() * 1000) - START) // HOUR)
        for row in rows
    )


def overwriting(location: Location) -> Callable[..., None]:
    """Return a commit of who looks which version is the last, and writes the next one later."""

    def commit(held: DeltaTable, actions: Sequence[Any], **_: Any) -> None:
        added = [one for one in actions if isinstance(one, AddAction)]
        days = {one.partition_values["day"] for one in added}
        gone = [one for one in files_of(held) if one.partition["day"] in days]
        commit_blindly(location, held, gone, added)

    return commit


def measure_while_days_expire(site: ArchiveSite, monkeypatch: pytest.MonkeyPatch | None) -> None:
    measured(site)

    def let_go() -> None:
        expire(site.location, tables.PUBLISHING, SECOND)
        if monkeypatch is not None:
            commit = overwriting(site.location)
            monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)

    with before_commit_of(tables.PUBLISHING, let_go):
        measure(site.spark, site.location)
    assert published(site) == [("main", 24), ("main", 29)]
    assert whole_from(stored(site.location, tables.PUBLISHING)) == SECOND


@pytest.mark.depth  # the compaction below is another upkeep between look and commit
def test_days_that_expire_while_measures_are_written_stay_gone(site: ArchiveSite) -> None:
    measure_while_days_expire(site, None)


@pytest.mark.proof
def test_a_build_whose_commits_overwrite_is_caught(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="main"):
        measure_while_days_expire(site, monkeypatch)


def compact(site: ArchiveSite) -> None:
    third = date(2026, 1, 3)
    assert compaction.compact(site.spark, site.location, tables.PUBLISHING, third) == 1


def test_hours_that_are_written_lose_nothing_of_a_compaction_of_the_same_day(
    site: ArchiveSite,
) -> None:
    run = MeasuresTables.find(site.spark, site.location)
    for agent in ("older", "main"):
        add_published(site, agent, DAY)
    hour = START + DAY + 5 * HOUR
    made = site.spark.createDataFrame([hour_published("main", DAY + 5 * HOUR)], schemas.PUBLISHING)
    with before_commit_of(tables.PUBLISHING, lambda: compact(site)) as writes:
        run.replace(tables.PUBLISHING, made, hour)
    assert writes.count(tables.PUBLISHING) == 2, "it did not begin anew"
    assert published(site) == [("main", 24), ("main", 29), ("older", 24)]


@pytest.mark.depth  # above, one table's hours are written
def test_measures_lose_nothing_of_a_compaction_of_the_same_day(site: ArchiveSite) -> None:
    measured(site)
    add_published(site, "older", DAY)
    with before_commit_of(tables.PUBLISHING, lambda: compact(site)) as writes:
        measure(site.spark, site.location)
    assert writes.count(tables.PUBLISHING) == 2, "it did not begin anew"
    assert published(site) == [("main", 0), ("main", 24), ("main", 29), ("older", 24)]


@pytest.mark.depth  # `test_upkeep_beside_archive.py` has another commit amid a compaction
def test_a_compaction_loses_nothing_that_is_measured_meanwhile(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(site)
    add_published(site, "later", DAY)
    append(site.location, tables.PACKAGES, [package(4, DAY + 6 * HOUR)])
    rewritten = compaction._rewritten

    def meanwhile(*given: Any) -> list[File]:
        monkeypatch.setattr(compaction, "_rewritten", rewritten)
        measure(site.spark, site.location)
        return rewritten(*given)

    monkeypatch.setattr(compaction, "_rewritten", meanwhile)
    compaction.compact(site.spark, site.location, tables.PUBLISHING, date(2026, 1, 3))
    assert published(site) == [("later", 24), ("main", 0), ("main", 24), ("main", 29), ("main", 30)]


def add_published(site: ArchiveSite, agent: str, hour_ms: int) -> None:
    """Add a file to a day of the table."""
    shape = to_arrow_schema(schemas.PUBLISHING, timezone="UTC")
    write_deltalake(
        stored(site.location, tables.PUBLISHING),
        pa.Table.from_pylist([hour_published(agent, hour_ms)], schema=shape),
        mode="append",
    )


def hour_published(agent: str, hour_ms: int) -> dict[str, Any]:
    zeros = dict.fromkeys(schemas.PUBLISHING.names, 0)
    return {**zeros, "publisher_agent": agent, "hour": at(hour_ms), "day": at(hour_ms).date()}


@pytest.mark.depth  # `unit/pipeline/test_measures_writing.py` has it without Spark
def test_of_two_measures_at_once_one_ends_and_says_so(site: ArchiveSite) -> None:
    prepare(site.location)
    append(site.location, tables.PACKAGES, [package(1, 0), package(2, DAY)])

    def another() -> None:
        measure(site.spark, site.location)

    with (
        before_commit_of(tables.FAILURES, another),
        pytest.raises(Overtaken, match="another run of measures is at work"),
    ):
        measure(site.spark, site.location)
    assert published(site) == [("main", 0), ("main", 24)]
    assert measure(site.spark, site.location) is None, "the other run has done all"


@pytest.mark.depth  # `unit/pipeline/test_measures_writing.py` has it without Spark
def test_a_commit_whose_answer_was_lost_is_not_another_runs(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(site)
    commit, lost = DeltaTable.create_write_transaction, list[str]()

    def unanswered(held: DeltaTable, *given: Any, **options: Any) -> None:
        commit(held, *given, **options)
        lost.append(held.table_uri)
        raise CommitFailedError("a concurrent transaction has committed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", unanswered)
    measure(site.spark, site.location)
    assert len(lost) == len(set(lost)) > 0, "a table was written twice"
    assert published(site) == [("main", 0), ("main", 24), ("main", 29)]
