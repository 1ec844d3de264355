"""The session that the product starts, and the tables it can keep."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, lit

from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.errors import SchemaChanged, TaskRefused
from packhorse_services.pipeline.storage import delta, tables
from packhorse_services.pipeline.storage.delta import load, stored
from packhorse_services.pipeline.storage.location import Location
from tests.harness.depth import at_depth
from tests.harness.readable_tables import WRITTEN, filters, made
from tests.harness.spark import spark_environment

pytestmark = pytest.mark.spark
DEPTH = pytest.mark.depth


def test_a_failure_is_raised_and_not_printed_besides(
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_frame: DataFrame, _number: int) -> None:
        raise TaskRefused("another run is at work")

    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1).load()
    writer = rows.writeStream.foreachBatch(refuse).trigger(availableNow=True)
    with pytest.raises(TaskRefused, match="another run is at work"), translated("test"):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    with pytest.raises(SchemaChanged), translated("test"):
        spark.range(1).select(col("missing")).count()
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_workers_use_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    """That in Spark's archive of source they would compile anew, each of them."""

    def told(_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark.worker

        yield pa.RecordBatch.from_pydict({"file": [pyspark.worker.__file__, *sys.path]})

    found = [row["file"] for row in spark.range(1).mapInArrow(told, "file string").collect()]
    assert ".zip/" not in found[0]
    assert not [place for place in found if "pyspark.zip" in place or "spark-core" in place]


def test_what_is_configured_is_not_on_the_command_line_of_the_jvm(spark: SparkSession) -> None:
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    line = Path(f"/proc/{process.pid}/cmdline").read_text()
    assert "-XX:TieredStopAtLevel=1" in line
    assert str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:") not in line


SESSIONS = """
from contextlib import suppress
from pathlib import Path
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.settings import Settings

def children():
    found = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += file.read_text().split()
    return found

for _ in range(2):
    with running_spark(Settings(), Location.parse("/nowhere"), "sessions") as spark:
        print(spark.range(3).count(), bool(children()))
    print(children())
"""
DIES = """
from packhorse_services.pipeline.engine.exit_codes import plain_ends
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.engine.session import SparkContext, running_spark
from packhorse_services.pipeline.settings import Settings

settings = Settings(), Location.parse("/nowhere"), "dies"
with plain_ends(), running_spark(*settings) as spark, translated("dies"):
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()
    spark.range(3).count()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-c", program),
        env={**os.environ, **spark_environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


@pytest.mark.depth  # `test_archive_pair.py` ends a program's one session
def test_a_session_leaves_no_jvm_and_another_may_follow() -> None:
    done = run(SESSIONS)
    assert done.stdout == "3 True\n[]\n" * 2, done.stderr
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.depth
def test_a_jvm_that_dies_is_reported_in_a_line_that_is_the_last() -> None:
    done = run(DIES)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: dies"), done.stderr


@pytest.mark.parametrize(
    "name",
    [name if name == "silver/statuses" else pytest.param(name, marks=DEPTH) for name in WRITTEN],
)
def test_a_filter_on_a_table_of_the_pipeline_finds_its_rows(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    location = Location.parse(str(tmp_path))
    _, whole = made(location, name)
    table = spark.read.format("delta").load(location.delta_uri(name))
    wanted = list(filters(whole, one_of_a_type=at_depth(full=False, gate=True)))
    counts = [
        table.where(col(column) == one).agg(count("*").alias("found"), lit(place).alias("place"))
        for place, (column, one, _) in enumerate(wanted)
    ]
    found = {row["place"]: row["found"] for row in reduce(DataFrame.union, counts).collect()}
    assert [found[place] for place in range(len(wanted))] == [rows for _, _, rows in wanted]


def test_a_table_is_the_same_by_the_names_of_its_files_and_by_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, name = Location.parse(str(tmp_path / "a {b}")), tables.STATUSES
    made(location, name)
    for version, rows in ((0, 0), (2, 20)):
        held = stored(location, name, version)
        by_name = load(spark, location, name, held)
        with monkeypatch.context() as many:
            many.setattr(delta, "_FEW_FILES", -1)
            by_delta = load(spark, location, name, held)
        assert by_name.dtypes == by_delta.dtypes
        assert "delta" not in by_name._jdf.queryExecution().toString().lower()
        found = [sorted(map(str, frame.collect())) for frame in (by_name, by_delta)]
        assert found[0] == found[1]
        assert len(found[0]) == rows
