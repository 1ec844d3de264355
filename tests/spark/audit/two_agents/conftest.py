"""The archive of two agents, and a subscriber, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse_services.pipeline.storage.location import Location
from tests.harness.history import History
from tests.harness.postgres import Databases
from tests.spark.audit.two_agents.site import Site


@pytest.fixture
def site(spark: SparkSession, databases: Databases, tmp_path: Path) -> Iterator[Site]:
    history = History(FilesystemBlobs(tmp_path / "blobs"))
    location = Location.parse(str(tmp_path / "tables"))
    yield Site(spark, location, databases, databases.new("sub"), history)
    history.bodies.close()
