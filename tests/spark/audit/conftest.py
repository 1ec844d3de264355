"""A site with some history for each test."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import page
from tests.harness.history import History, archive
from tests.harness.postgres import Databases
from tests.spark.audit.audited_site import Site


@pytest.fixture
def site(spark: SparkSession, databases: Databases, tmp_path: Path) -> Iterator[Site]:
    location = Location.parse(str(tmp_path / "tables"))
    history = History(FilesystemBlobs(tmp_path / "blobs"))
    history.add(page("/a", 1), page("/a/b", 1, text="é\n"), page("/c", 1))
    history.add(page("/deep"), page("/deep/x"), page("/deep/y"), deep=["/deep"])
    history.delete("/c")
    history.add(page("/a/b", 2))
    history.add(page("/a/removed"))
    archive(location, history.records)
    with ExitStack() as connections:
        yield Site(spark, location, databases, history, {}, connections)
    history.bodies.close()
