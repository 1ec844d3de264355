"""A site whose archive is snapshot."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.history.archived_site import Site


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    site = Site(spark, tmp_path)
    yield site
    site.blobs.close()
