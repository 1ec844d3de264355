"""A Spark session for the tests of the pipeline."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.harness.spark import end_spark, spark_for_tests


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session for all tests of this process, started by the first one that asks."""
    session = spark_for_tests(tmp_path_factory.mktemp("spark"))
    yield session
    end_spark(session)


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Plans run without being compiled first, which for a handful of rows takes half the time."""
    quick = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    for name, value in quick.items():
        spark.conf.set(name, value)
    yield
    for name in quick:
        spark.conf.unset(name)
