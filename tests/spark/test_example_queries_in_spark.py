"""What docs/tables.md says about Spark: the same questions, asked in Spark SQL."""

import pytest
from pyspark.sql import SparkSession

from packhorse_services.pipeline.storage.location import Location
from tests.harness.example_queries import (
    ANSWERS,
    OPENING_DUCKDB,
    OPENING_SPARK,
    QUERIES,
    answer,
    in_spark,
    written,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    folder = tmp_path_factory.mktemp("tables")
    written(Location.parse(str(folder)))
    names = OPENING_DUCKDB.partition("names = ")[2].partition("\n\n")[0]
    exec(f"names = {names}\n{OPENING_SPARK}", {"spark": spark, "folder": str(folder)})
    return spark


@pytest.mark.parametrize("question", ANSWERS)
def test_spark_answers(views: SparkSession, question: str) -> None:
    assert answer(views.sql(in_spark(QUERIES[question])).toArrow()) == ANSWERS[question]


def test_describe_shows_what_a_column_means(views: SparkSession) -> None:
    described = {
        row["col_name"]: row["comment"] for row in views.sql("DESCRIBE delivery").collect()
    }
    assert described["blocked_ms"] == "How long a package that fails held up the others [ms]"
