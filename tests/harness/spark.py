"""Spark as the product starts it, made quick to start and small."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from packhorse_services.pipeline.engine.session import _launch, _with_java_options, spark_session
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location

QUICK = {
    # Short runs gain nothing from the optimising compiler or a parallel collector. Without the
    # former, 48 MiB are kept for compiled code, which a session of many tests fills, and dies of.
    # Room for classes that is there from the start spares five full collections.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
        "-XX:MetaspaceSize=256m"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
AS_IN_PRODUCTION = os.environ.get("TEST_SPARK_AS_IN_PRODUCTION") == "1"
"""Whether the tests' sessions compile their plans and adapt them; in `make chaos` they do.

To compile a plan takes longer than a test's handful of rows. `make test` has one program that does
it in `test_pipeline_tasks.py`.
"""
_SMALL = {
    "spark.buffer.pageSize": "1m",  # else each sort, aggregate and broadcast clears up to 64 MiB
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def spark_for_tests(folder: Path) -> SparkSession:
    """Return the session of this process, its warehouse in `folder`."""
    small = {} if AS_IN_PRODUCTION else _SMALL
    conf = {
        **QUICK,
        **small,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "3g",  # what a program does once, this session does a hundred times
    }
    settings = Settings(tables_url=str(folder / "tables"), spark_master="local[2]", spark_conf=conf)
    return spark_session(settings, Location.parse(settings.tables_url), "tests")


def spark_environment(*, as_in_production: bool = AS_IN_PRODUCTION) -> dict[str, str]:
    """Return settings that make a program's own session as quick; its plans may be compiled."""
    conf = json.dumps(program_conf(as_in_production=as_in_production))
    return {"PACKHORSE_SPARK_MASTER": "local[2]", "PACKHORSE_SPARK_CONF": conf}


def program_conf(*, as_in_production: bool = AS_IN_PRODUCTION) -> dict[str, str]:
    """Return what makes a program's own session as quick; its plans may be compiled."""
    return QUICK if as_in_production else {**QUICK, **_SMALL}


@contextmanager
def warm_jvm() -> Iterator[dict[str, str]]:
    """Start a JVM for programs one after the other; give the settings by which they find it.

    To a program it is that of `spark-submit`: it has a session of its own in it, and leaves it
    running. The first one loads and compiles what is there for the next ones: a dry run of upkeep
    takes 42 s of the processor's time with a JVM of its own, and 9 in a warm one.
    """
    master = "local[2]"
    conf = {**QUICK, "spark.master": master, **_launch(Settings(), master)}
    options = _with_java_options(conf, master)
    of_its_own = SparkConf(loadDefaults=False).setAll(list(options.items()))
    gateway = launch_gateway(of_its_own)  # type: ignore[no-untyped-call]
    found = gateway.gateway_parameters
    try:
        yield {
            "PYSPARK_GATEWAY_PORT": str(found.port),
            "PYSPARK_GATEWAY_SECRET": str(found.auth_token),
        }
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
