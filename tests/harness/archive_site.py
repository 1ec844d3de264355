"""A journal, and its archive in a folder of its own, run inside the tests' Spark session."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive.checkpoint import newest
from packhorse_services.pipeline.archive.lease import only_run
from packhorse_services.pipeline.archive.progress import ArchiveProgress
from packhorse_services.pipeline.archive.query import ArchivedJournal, Reached, unheeded
from packhorse_services.pipeline.archive.task import Archive, Choices
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location
from tests.harness.archive import everything_in, fill
from tests.harness.journals import fresh_name
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server


@dataclass
class ArchiveSite:
    """What a test fills, archives and looks at."""

    spark: SparkSession
    url: str
    journal: Journal
    tables_url: str
    blobs_url: str
    topics: Topics

    @property
    def location(self) -> Location:
        return Location.parse(self.tables_url)

    @property
    def blobs(self) -> BlobStore:
        """The product's blob store."""
        return open_blobs(self.blobs_url)

    def fill(self, numbers: Sequence[int], *kinds: str) -> None:
        """Append messages of these kinds (`package`, `status` …), or of all."""
        fill(self.journal, self.topics, numbers, [getattr(self.topics, kind) for kind in kinds])

    def archive(
        self,
        choices: Choices = Choices(),  # noqa: B008 - it never changes
        *,
        reached: Reached = unheeded,
        max_offsets: int = 100_000,
        stop: threading.Event | None = None,
        database_url: str = "",
    ) -> None:
        """Run the archive once."""
        origin = ArchivedJournal(self.url, self.topics, max_offsets)
        run = Archive(
            self.spark,
            self.location,
            origin,
            self.blobs_url,
            choices,
            ArchiveProgress(),
            reached,
            stop or threading.Event(),
        )
        with only_run(database_url, self.location.shown) as keep:
            run.run(keep)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return a small table's rows, without Spark: each look of its costs a second."""
        found: list[dict[str, Any]] = stored(self.location, table).to_pyarrow_table().to_pylist()
        return found

    def places(self, table: str) -> list[int]:
        """Return the offsets of a silver table whose topic has one partition, in order."""
        return sorted(row["offset"] for row in self.rows(table))

    def checkpoint(self) -> Path:
        """Return where the query's checkpoint is."""
        found = newest(self.location)
        assert found is not None, "there is no checkpoint"
        return Path(found.path)

    def require_equal_sets(self) -> None:
        """Fail unless bronze has every record of the journal, with its value, once."""
        found = [
            ((row["topic"], row["partition"], row["offset"]), bytes(row["value"]))
            for row in self.rows(tables.BRONZE)
        ]
        assert len(found) == len(dict(found)), "a record is in the archive twice"
        assert dict(found) == everything_in(self.journal, self.topics)


@contextmanager
def archive_site(
    spark: SparkSession, url: str, folder: Path, topics: Topics | None = None
) -> Iterator[ArchiveSite]:
    """Open the journal of a site in `folder`, its topics new ones unless named."""
    journal = open_journal(url, client_name="tests")
    names = topics or Topics.named(fresh_name(), {})
    tables_url, blobs_url = str(folder / "tables"), str(folder / "blobs")
    try:
        yield ArchiveSite(spark, url, journal, tables_url, blobs_url, names)
    finally:
        journal.close()


@contextmanager
def on_s3(site: ArchiveSite, s3: S3Server, name: str) -> Iterator[ArchiveSite]:
    """Let a site have its tables on S3: Spark and its tasks, which read and write by themselves."""
    site.tables_url = s3.url(name)
    hadoop = site.spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    for key, value in site.location.hadoop_conf().items():
        hadoop.set(key.removeprefix("spark.hadoop."), value)
    hadoop.set("fs.s3a.access.key", ACCESS_KEY)
    hadoop.set("fs.s3a.secret.key", SECRET_KEY)
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    with patch.dict(site.spark.sparkContext.environment, keys):
        yield site


def journal_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the journal that the fixture's parameter names."""
    if request.param == "kafka":
        broker: RunningKafka = request.getfixturevalue("kafka")
        return broker.url
    databases: Databases = request.getfixturevalue("databases")
    return databases.new()


def places(location: Location, table: str) -> list[tuple[object, ...]]:
    """Return where the records of a table are from."""
    held = stored(location, table)
    there = held.schema().to_arrow().names
    names = [name for name in ("topic", "partition", "offset") if name in there]
    columns = held.to_pyarrow_table(columns=names).to_pydict()
    return list(zip(*(columns[name] for name in names), strict=True))
