"""`packhorse-pipeline jars`: the jars, and an archive of the classes that Spark's JVM loads.

Later runs map it instead of loading them: class data sharing of the JVM (JEP 350). With it a task
starts in half the time (ADR 0098).
"""

import os
import tempfile
from pathlib import Path

import typer
from pyspark.sql import DataFrame, SparkSession

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.engine.jars import class_archive, fetch_jars
from packhorse_services.pipeline.engine.session import JAVA_OPTIONS, running_spark
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage.location import Location


def share_classes(settings: Settings, jars: Path) -> Path:
    """Make the archive of classes for these jars unless it is there, and return its path.

    It appears whole, or not at all where it can't be written: tasks run without it, too.
    Raises what `translated` and `running_spark` raise.
    """
    archive = class_archive(jars)
    if archive.is_file() or not os.access(jars.parent, os.W_OK):
        return archive
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=f"{archive.stem}-") as workplace:
        fresh = Path(workplace, archive.name)
        options = f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable -Xlog:all=error:stderr"
        own = {
            "spark_jars": jars,
            "spark_master": "local[1]",
            "spark_conf": {JAVA_OPTIONS: options},
        }
        changed = settings.model_copy(update=own)
        with (
            running_spark(changed, Location.parse(workplace), "classes") as spark,
            translated("jars"),
        ):
            _load_classes(spark, workplace)
        if fresh.is_file():
            fresh.rename(archive)
    return archive


def _load_classes(spark: SparkSession, folder: str) -> None:
    """Do a little of what tasks do: Delta tables, a stream into one, joins, windows, Arrow."""
    table, stream = f"{folder}/table", f"{folder}/stream"
    numbers = spark.range(100).selectExpr("id", "id % 7 AS part", "cast(id AS string) AS name")
    numbers.write.format("delta").partitionBy("part").save(table)

    def append(frame: DataFrame, number: int) -> None:
        once = frame.write.format("delta").mode("append")
        once.option("txnAppId", "classes").option("txnVersion", number).save(stream)

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    query = source.writeStream.foreachBatch(append).option("checkpointLocation", f"{folder}/point")
    query.trigger(availableNow=True).start().awaitTermination()
    stored = spark.read.format("delta").load(table)
    ranked = stored.selectExpr("*", "row_number() OVER (PARTITION BY part ORDER BY id) AS place")
    counted = ranked.where("place > 1").groupBy("part").count()
    joined = counted.join(stored, "part").select("part", "count", "id", "name").orderBy("id")
    joined.mapInArrow(lambda batches: batches, joined.schema).toPandas()


def jars() -> None:
    """Fetch the jars that Spark needs, unless they are there, and print their folder.

    Beside it, the classes that every task loads are kept for quicker starts.
    """
    settings = loaded(Settings)
    folder = fetch_jars(settings.spark_jars, settings.ivy_settings)
    share_classes(settings, folder)
    typer.echo(folder)
