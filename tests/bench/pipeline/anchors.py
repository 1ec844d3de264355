"""What the pipeline is compared with, in the same run."""

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession

from packhorse.blobs.open import open_blobs
from packhorse.packages.body import pack
from packhorse.packages.build import export
from packhorse.wire.messages import Action
from packhorse_services.pipeline.engine.session import end_spark, spark_session
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location
from tests.bench.pipeline.material import ROOT, TOPICS
from tests.harness.kafka import runtime
from tests.harness.kafka.broker import RunningKafka

_HERE = Path(__file__).parent
_JDBC_DRIVER = "org.postgresql:postgresql:42.7.8"
"""By its Maven coordinates: Spark fetches it. The product reads Postgres by psycopg."""


def consumer_perf(broker: RunningKafka, count: int) -> float:
    """Return records a second of Kafka's own `kafka-consumer-perf-test`, rebalancing left out."""
    java, _ = runtime.java()
    classpath = f"{runtime.jars()}/*:{_tools()}/*"
    done = subprocess.run(
        [
            *(str(java), "-Xmx512m", "-cp", classpath),
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", broker.bootstrap, "--topic", TOPICS.package),
            *("--num-records", str(count), "--timeout", "60000"),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if re.match(r"\d{4}-", line)]
    if not lines:
        raise SystemExit(f"the anchor failed: {done.stdout}{done.stderr}")
    return float(lines[-1].split(",")[9])  # fetch.nMsg.sec


def _tools() -> Path:
    folder = runtime.cache_folder() / "kafka-tools-4.3.1"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as workplace:
            pom = shutil.copy(_HERE / "pom.xml", workplace)
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={workplace}/jars")
            subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True)
            Path(workplace, "jars").rename(folder)
    return folder


def jdbc_read(url: str, count: int, folder: Path) -> float:
    """Return rows a second of Spark's JDBC source over the journal's own tables, to nowhere."""
    settings = Settings(tables_url=str(folder), spark_conf={"spark.jars.packages": _JDBC_DRIVER})
    spark = spark_session(settings, Location.parse(settings.tables_url), "anchor")
    try:
        frames = [_segment(spark, url, table) for table in _segments(url)]
        frames[0].limit(1).write.format("noop").mode("overwrite").save()  # the connection, the JIT
        began = time.perf_counter()
        for frame in frames:
            frame.write.format("noop").mode("overwrite").save()
        return count / (time.perf_counter() - began)
    finally:
        end_spark(spark)


def _segments(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT 'journal.records_' || segment.partition_id || '_' || first_offset"
            " FROM journal.segment JOIN journal.partition ON partition.id = partition_id"
            " JOIN journal.topic ON topic.id = topic_id WHERE topic.name = %s",
            (TOPICS.package,),
        ).fetchall()
    return [table for (table,) in rows]


def _segment(spark: SparkSession, url: str, table: str) -> DataFrame:
    with psycopg.connect(url) as connection:
        bounds = connection.execute(f'SELECT min("offset"), max("offset") + 1 FROM {table}')
        low, high = bounds.fetchone() or (0, 0)
    server = conninfo_to_dict(url)
    options = {
        "url": f"jdbc:postgresql://{server['host']}:{server['port']}/{server['dbname']}",
        "driver": "org.postgresql.Driver",
        "user": server["user"],
        "password": server.get("password", ""),
        "dbtable": table,
        "fetchsize": "5000",
        "partitionColumn": "offset",
        "lowerBound": str(low),
        "upperBound": str(high),
        "numPartitions": "4",
    }
    return spark.read.format("jdbc").options(**options).load()


def plain_export(url: str, folder: Path) -> float:
    """Return the seconds of the product's own exporter for the whole tree as one package."""
    blobs = open_blobs(str(folder))
    began = time.perf_counter()
    with psycopg.connect(url) as connection:
        pack(export(connection, Action.ADD, [], [ROOT]), "dstrpck-1-00000000000000ff", blobs)
    return time.perf_counter() - began
