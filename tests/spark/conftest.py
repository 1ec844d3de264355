"""A Spark session for the tests of the pipeline."""

import gc
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from packhorse_services.pipeline.engine.session import end_spark
from tests.harness.spark import spark_for_tests


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session for all tests of this process, started by the first one that asks."""
    session = spark_for_tests(tmp_path_factory.mktemp("spark"))
    yield session
    end_spark(session)


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """Let the session forget each module's tables: Delta keeps their states for an hour.

    What Python still refers to, the JVM keeps: plans, and with them what was broadcast.
    """
    yield
    gc.collect()
    context = SparkContext._active_spark_context
    if context is not None and context._jvm is not None:
        context._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture(scope="module")
def several_partitions(spark: SparkSession) -> Iterator[None]:
    """Let plans have more than one partition: what belongs together must be brought together."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)
