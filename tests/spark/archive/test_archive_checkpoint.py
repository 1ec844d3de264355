"""A checkpoint that is damaged, foreign, overtaken; tables rewritten; another journal."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive import lease, start
from packhorse_services.pipeline.archive.checkpoint import Checkpoint
from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.errors import (
    CheckpointCorrupt,
    NotYet,
    Overtaken,
    TaskFailed,
    TaskRefused,
)
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import BatchMark, append, last_version
from packhorse_services.pipeline.storage.location import Location
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
    url = databases.copy(archived.url)
    with archive_site(archived.spark, url, tmp_path, archived.topics) as found:
        yield found


def test_another_querys_checkpoint_is_refused(site: ArchiveSite) -> None:
    file = site.checkpoint() / "offsets" / "0"
    version, settings, _ = file.read_text().split("\n")
    file.write_text("\n".join([version, settings, json.dumps({"reservoirVersion": 3})]))
    with pytest.raises(CheckpointCorrupt, match="another query's"):
        site.archive()


class BrokenOffError(Exception):
    """What a kill looks like from inside."""


@pytest.mark.parametrize(
    "point", ["after bronze", pytest.param(f"after {tables.PACKAGES}", marks=pytest.mark.depth)]
)
def test_a_batch_that_was_half_done_is_decoded_without_its_checkpoint_and_the_journal(
    site: ArchiveSite, point: str
) -> None:
    """The journal has forgotten the records meanwhile; bronze has them."""

    def killed(here: str) -> None:
        if here == point:
            raise BrokenOffError(here)

    site.fill([3, 4], "package", "command")
    with pytest.raises(TaskFailed, match=point):
        site.archive(reached=killed)
    site.journal.truncate(site.topics.package, 5)
    site.fill([5], "package", "command")
    site.archive()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3, 4, 5]
    assert sorted(row["issued_ms"] for row in site.rows(tables.COMMANDS)) == [0, 1, 2, 3, 4, 5]
    records = [(row["topic"], row["partition"], row["offset"]) for row in site.rows(tables.BRONZE)]
    assert len(records) == len(set(records)) == 12
    assert site.rows(tables.GAPS) == []


def truncate(file: Path) -> None:
    """Leave half of a file, and no checksum of it, as a full disk does."""
    file.with_name(f".{file.name}.crc").unlink()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_who_was_overtaken_writes_no_more_and_its_checkpoint_is_left_on_request(
    site: ArchiveSite,
) -> None:
    """A paused run wakes up after another one, of another checkpoint, has gone on."""
    before = last_version(site.location, tables.BRONZE)
    assert before is not None
    site.fill([3], "package", "command")

    def overtaken(point: str) -> None:
        if point == "before bronze":
            append(site.location, tables.BRONZE, BatchMark(before, before + 1))

    with pytest.raises(Overtaken, match="another run of the archive has gone on with bronze"):
        site.archive(reached=overtaken)
    assert len(site.rows(tables.BRONZE)) == 6
    with pytest.raises(CheckpointCorrupt, match="less than the tables have"):
        site.archive()
    truncate(site.checkpoint() / "offsets" / "0")
    with pytest.raises(CheckpointCorrupt, match=r"offsets/0.* --new-checkpoint"):
        site.archive()
    site.archive(Choices(new_checkpoint=True))
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3]
    assert sorted(row["issued_ms"] for row in site.rows(tables.COMMANDS)) == [0, 1, 2, 3]


def test_who_begins_anew_while_another_run_goes_on_writes_nothing_twice(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits a batch when this one has just read how far bronze reaches."""
    before = last_version(site.location, tables.BRONZE)
    assert before is not None
    held_by_bronze = start.held_by_bronze

    def meanwhile(location: Location) -> start.BronzeState:
        held = held_by_bronze(location)
        append(location, tables.BRONZE, BatchMark(before, before + 1))
        return held

    site.fill([3], "package")
    monkeypatch.setattr(start, "held_by_bronze", meanwhile)
    with pytest.raises(Overtaken, match="another run of the archive has gone on with bronze"):
        site.archive(Choices(new_checkpoint=True))
    assert len(site.rows(tables.BRONZE)) == 6


def test_a_second_run_is_refused_by_the_lease(
    site: ArchiveSite, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before it has done anything, and the first one goes on."""
    monkeypatch.setattr(lease, "_PATIENCE_S", 0.0)
    refused: list[str] = []

    def meanwhile(point: str) -> None:
        if point == "before bronze":
            other = replace(site, spark=site.spark.newSession())
            with pytest.raises(NotYet, match="another run of the archive is at work"):
                other.archive(Choices(new_checkpoint=True), database_url=database_url)
            refused.append(point)

    site.fill([3], "package")
    site.archive(reached=meanwhile, database_url=database_url)
    assert refused
    site.require_equal_sets()
    monkeypatch.undo()  # the server may end the first one's session after its client has left
    site.archive(database_url=database_url)  # the first one has let go of it


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
    backup = databases.copy(site.url)
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
def test_it_goes_on_after_bronze_was_compacted_and_expired(site: ArchiveSite) -> None:
    site.fill([3], "package", "command")
    site.archive()
    path = site.location.spark_path(tables.BRONZE)
    site.spark.sql(f"OPTIMIZE delta.`{path}`")
    site.archive()
    site.spark.sql(f"DELETE FROM delta.`{path}` WHERE topic = '{site.topics.command}'")
    site.archive()
    site.archive()
    site.fill([4], "package", "command")
    site.archive()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3, 4]
    assert len(site.rows(tables.COMMANDS)) == 5


@pytest.mark.depth  # `test_measures_beside_upkeep.py` archives to S3, with others beside it
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
    later(site.checkpoint())
    finished = Checkpoint.finished

    def meanwhile(checkpoint: Checkpoint) -> int | None:
        append(site.location, tables.BRONZE, checkpoint.mark(1))
        return finished(checkpoint)

    monkeypatch.setattr(Checkpoint, "finished", meanwhile)
    with pytest.raises(Overtaken, match="another run of the archive is at work"):
        site.archive()


def later(checkpoint: Path) -> None:
    """Let a checkpoint have one more batch, which goes further by an offset in each partition."""
    offsets, commits = (checkpoint / log for log in ("offsets", "commits"))
    version, settings, places = (offsets / "0").read_text().split("\n")
    further = {
        topic: {number: offset + 1 for number, offset in partitions.items()}
        for topic, partitions in json.loads(places).items()
    }
    (offsets / "1").write_text("\n".join([version, settings, json.dumps(further)]))
    shutil.copy(commits / "0", commits / "1")


def test_a_checkpoint_that_did_more_than_the_tables_is_refused(site: ArchiveSite) -> None:
    later(site.checkpoint())
    with pytest.raises(CheckpointCorrupt, match="more than the tables have"):
        site.archive()


@pytest.mark.depth  # who was overtaken, above, finds the same
def test_tables_that_have_more_than_the_checkpoint_are_told(site: ArchiveSite) -> None:
    """As after a copy of the checkpoint was brought back."""
    before = site.checkpoint().parent
    shutil.copytree(before, before.with_name("backup"))
    site.fill([3], "package")
    site.archive()
    shutil.rmtree(before)
    before.with_name("backup").rename(before)
    with pytest.raises(CheckpointCorrupt, match="less than the tables have"):
        site.archive()
    site.archive(Choices(new_checkpoint=True))
    site.require_equal_sets()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3]
