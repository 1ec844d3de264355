"""The session that the product starts, and the tables it can keep."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_delta_table_takes_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        spark.range(3).write.format("delta").mode("append").option("txnAppId", "a").option(
            "txnVersion", 7
        ).save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 3
