"""A checkpoint that is damaged, foreign, overtaken; tables rewritten; another journal (S6)."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from packhorse.messaging.open import open_journal
from packhorse_services.pipeline import tables
from packhorse_services.pipeline.archive import bronze, silver
from packhorse_services.pipeline.archive.bronze import Origin
from packhorse_services.pipeline.archive.checkpoint import Folder, Progress
from packhorse_services.pipeline.archive.delta import Turn, settle
from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.errors import CheckpointCorrupt, TaskRefused
from tests.harness.archive import fill
from tests.harness.archive_site import ArchiveSite, archive_site
from tests.harness.journals import SqlBackend
from tests.harness.postgres import Databases
from tests.harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server

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


def test_s6_a_truncated_checkpoint_is_left_on_request_without_duplicates(
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
            origin = Origin(site.url, site.topics)
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
    """Identity and bounds are as expected; only the records tell."""
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
    with archive_site(spark, database_url, tmp_path) as site:
        site.tables_url = s3.url(f"archive-{tmp_path.name}")
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
        for name, value in site.location.hadoop_conf().items():
            hadoop.set(name.removeprefix("spark.hadoop."), value)
        hadoop.set("fs.s3a.access.key", ACCESS_KEY)
        hadoop.set("fs.s3a.secret.key", SECRET_KEY)
        for number in range(2):
            site.fill([number], "package")
            site.archive()
        site.require_equal_sets()
        assert site.places(tables.PACKAGES) == [0, 1]


def test_s8_who_plans_while_another_run_goes_on_is_told_so(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one ends a batch between the two looks, at the tables and at the checkpoint."""
    folder, location = site.checkpoint(bronze.QUERY), site.location
    progress_of = bronze.progress_of

    def meanwhile(checkpoint: Folder) -> Progress | None:
        for log in ("offsets", "commits"):
            shutil.copy(folder / log / "0", folder / log / "1")
        settle(location, tables.BRONZE, Turn(bronze.QUERY, 0, 1))
        return progress_of(checkpoint)

    monkeypatch.setattr(bronze, "progress_of", meanwhile)
    with pytest.raises(TaskRefused, match="another run of the archive is at work"):
        bronze.plan(site.spark, location, Origin(site.url, site.topics))


def test_a_checkpoint_that_did_more_than_the_tables_is_refused(site: ArchiveSite) -> None:
    folder = site.checkpoint(bronze.QUERY)
    for log in ("offsets", "commits"):
        shutil.copy(folder / log / "0", folder / log / "1")
    assert json.loads((folder / "metadata").read_text())["id"]
    with pytest.raises(CheckpointCorrupt, match="more than the tables have"):
        site.archive()
