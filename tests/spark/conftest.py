"""A Spark session for the tests of the pipeline."""

import gc
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from packhorse_services.pipeline.session import end_spark
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
