"""A checkpoint that is damaged, foreign, overtaken; tables rewritten; another journal."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive import bronze, silver
from packhorse_services.pipeline.archive.bronze import ArchivedJournal
from packhorse_services.pipeline.archive.checkpoint import CheckpointFolder, QueryProgress
from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.errors import CheckpointCorrupt, Overtaken, TaskRefused
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import BatchNumber, append
from tests.harness.archive import fill
from tests.harness.archive_site import ArchiveSite, archive_site, on_s3
from tests.harness.journals import SqlBackend
from tests.harness.postgres import Databases
from tests.harness.s3 import S3Server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def archived(
    spark: SparkSession, databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> ArchiveSite:
    """A site whose journal is archived; nobody is connected to its database any more."""
    folder = tmp_path_factory.mktemp("archived")
    with archive_site(spark, databases.new(), folder) as found:
        found.fill(range(3), "package", "command")
        found.archive()
    return found


@pytest.fixture
def site(archived: ArchiveSite, databases: Databases, tmp_path: Path) -> Iterator[ArchiveSite]:
    """A copy of that site: tables, checkpoints and journal."""
    shutil.copytree(archived.tables_url, tmp_path / "tables")
    url = databases.copy(urlsplit(archived.url).path.removeprefix("/"))
    with archive_site(archived.spark, url, tmp_path, archived.topics) as found:
        yield found


def truncate(file: Path) -> None:
    """Leave half of a file, and no checksum of it, as a full disk does."""
    file.with_name(f".{file.name}.crc").unlink()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_truncated_checkpoint_is_left_on_request_without_duplicates(
    site: ArchiveSite,
) -> None:
    for query in (bronze.QUERY, silver.QUERY):
        truncate(site.checkpoint(query) / "offsets" / "0")
    site.fill([3], "package", "command")
    with pytest.raises(CheckpointCorrupt, match=r"offsets/0.* --new-checkpoint"):
        site.archive()
    with pytest.raises(CheckpointCorrupt, match=r"offsets/0.* --new-checkpoint"):
        silver.plan(site.spark, site.location, site.topics)
    site.archive(Choices(new_checkpoint=True))
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3]
    assert sorted(row["issued_ms"] for row in site.rows(tables.COMMANDS)) == [0, 1, 2, 3]


def test_another_querys_checkpoint_is_refused(site: ArchiveSite) -> None:
    shutil.rmtree(site.checkpoint(bronze.QUERY))
    shutil.copytree(site.checkpoint(silver.QUERY), site.checkpoint(bronze.QUERY))
    with pytest.raises(CheckpointCorrupt, match="another query's"):
        site.archive()


def test_who_was_overtaken_writes_no_more(site: ArchiveSite) -> None:
    """A paused run wakes up after somebody has begun a new checkpoint and archived its batch."""
    site.fill([3], "package", "command")

    def overtaken(point: str) -> None:
        if point == "before bronze":
            origin = ArchivedJournal(site.url, site.topics)
            bronze.plan(site.spark, site.location, origin, new_checkpoint=True)

    with pytest.raises(TaskRefused, match="another run has begun a new checkpoint"):
        site.archive(reached=overtaken)
    assert len(site.rows(tables.BRONZE)) == 6
    site.archive()
    site.require_equal_sets()


def test_r24_a_topic_created_anew_is_not_mixed_with_the_old_one(site: ArchiveSite) -> None:
    SqlBackend(site.url).remove_topic(site.topics.command)
    site.fill([3], "package", "command")
    with pytest.raises(TaskRefused, match=rf"{site.topics.command} was created anew.*TABLES_URL"):
        site.archive()


def test_r24_a_restored_journal_that_has_grown_again_is_not_mixed_with_the_old_one(
    site: ArchiveSite, databases: Databases
) -> None:
    """Identity and bounds are as expected; only the records show it."""
    site.journal.close()
    backup = databases.copy(urlsplit(site.url).path.removeprefix("/"))
    with closing(open_journal(site.url, client_name="tests")) as journal:
        fill(journal, site.topics, [3], [site.topics.package])
    site.archive()
    with closing(open_journal(backup, client_name="tests")) as journal:
        fill(journal, site.topics, [4, 5], [site.topics.package])
    before, site.url = site.url, backup
    with pytest.raises(
        TaskRefused, match=rf"{site.topics.package}/0 .* at offset 3 .*backup.*PACKHORSE_TABLES_URL"
    ):
        site.archive()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3]
    site.url = before
    site.archive()


@pytest.mark.depth
def test_silver_goes_on_after_bronze_was_compacted_and_expired(site: ArchiveSite) -> None:
    site.fill([3], "package", "command")
    site.archive()
    path = site.location.spark_path(tables.BRONZE)
    site.spark.sql(f"OPTIMIZE delta.`{path}`")
    site.archive()  # its silver has a batch without a record
    site.spark.sql(f"DELETE FROM delta.`{path}` WHERE topic = '{site.topics.command}'")
    site.archive()
    site.archive()
    site.fill([4], "package", "command")
    site.archive()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3, 4]
    assert len(site.rows(tables.COMMANDS)) == 5


def test_tables_and_checkpoints_on_s3(
    spark: SparkSession, database_url: str, tmp_path: Path, s3: S3Server
) -> None:
    with (
        archive_site(spark, database_url, tmp_path) as folder,
        on_s3(folder, s3, f"archive-{tmp_path.name}") as site,
    ):
        for number in range(2):
            site.fill([number], "package")
            site.archive()
        site.require_equal_sets()
        assert site.places(tables.PACKAGES) == [0, 1]


def test_who_plans_while_another_run_goes_on_is_refused(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one ends a batch between the two looks, at the tables and at the checkpoint."""
    folder, location = site.checkpoint(bronze.QUERY), site.location
    progress_of = bronze.progress_of

    def meanwhile(checkpoint: CheckpointFolder) -> QueryProgress | None:
        for log in ("offsets", "commits"):
            shutil.copy(folder / log / "0", folder / log / "1")
        append(location, tables.BRONZE, BatchNumber(bronze.QUERY, 0, 1))
        return progress_of(checkpoint)

    monkeypatch.setattr(bronze, "progress_of", meanwhile)
    with pytest.raises(TaskRefused, match="another run of the archive is at work"):
        bronze.plan(site.spark, location, ArchivedJournal(site.url, site.topics))


def test_bronze_alone_decides_which_of_two_runs_goes_on(site: ArchiveSite) -> None:
    """Of two live runs each could lose one query: then both would end."""
    stop, refused = threading.Event(), [f"before {tables.PACKAGES}", f"before {tables.STATUSES}"]

    def elsewhere(point: str) -> None:
        if point in refused:
            refused.remove(point)
            raise Overtaken("another run works on the query silver; end one of the two")
        if point == f"after {tables.EVENTS}":
            stop.set()

    site.fill([3])
    site.archive(Choices(continuous=True, interval_s=0), reached=elsewhere, stop=stop)
    assert not refused
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3]

    def lost(point: str) -> None:
        if point == "before bronze":
            raise Overtaken("another run works on the query bronze; end one of the two")

    site.fill([4], "package")
    with pytest.raises(Overtaken, match="the query bronze"):
        site.archive(Choices(continuous=True, interval_s=0), reached=lost)


def test_who_was_overtaken_on_silver_ends_when_bronze_was_begun_anew(site: ArchiveSite) -> None:
    """Planning again would take bronze back, and end the other run."""

    def elsewhere(point: str) -> None:
        if point == f"before {tables.PACKAGES}":
            origin = ArchivedJournal(site.url, site.topics)
            bronze.plan(site.spark, site.location, origin, new_checkpoint=True)
            raise Overtaken("another run works on the query silver; end one of the two")

    site.fill([3], "package")
    with pytest.raises(Overtaken, match="another run has begun a new checkpoint of the query bron"):
        site.archive(Choices(continuous=True, interval_s=0), reached=elsewhere)


def test_a_checkpoint_of_silver_that_another_run_has_removed_ends_nobody(
    site: ArchiveSite,
) -> None:
    """Spark then reports files that are not there."""
    stop, removed = threading.Event(), threading.Event()

    def elsewhere(point: str) -> None:
        if point == f"after {tables.EVENTS}" and not removed.is_set():
            removed.set()
            silver.plan(site.spark, site.location, site.topics, new_checkpoint=True)
            site.fill([4])
        elif point == f"after {tables.EVENTS}":
            stop.set()

    site.fill([3])
    site.archive(Choices(continuous=True, interval_s=0), reached=elsewhere, stop=stop)
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3, 4]


@pytest.mark.depth
def test_who_never_gets_a_batch_of_silver_through_ends(site: ArchiveSite) -> None:
    tried: list[str] = []

    def elsewhere(point: str) -> None:
        if point == f"before {tables.PACKAGES}":
            tried.append(point)
            site.fill([3 + len(tried)], "package")  # bronze goes on, which is no excuse
            raise Overtaken("another run works on the query silver; end one of the two")

    site.fill([3], "package")
    with pytest.raises(Overtaken, match="the query silver"):
        site.archive(Choices(continuous=True, interval_s=0), reached=elsewhere)
    assert len(tried) == 5


def test_a_checkpoint_that_did_more_than_the_tables_is_refused(site: ArchiveSite) -> None:
    folder = site.checkpoint(bronze.QUERY)
    for log in ("offsets", "commits"):
        shutil.copy(folder / log / "0", folder / log / "1")
    assert json.loads((folder / "metadata").read_text())["id"]
    with pytest.raises(CheckpointCorrupt, match="more than the tables have"):
        site.archive()
