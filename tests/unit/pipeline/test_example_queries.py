"""What docs/tables.md says about DuckDB: the tables open so, and each question is answered."""

from collections.abc import Iterator

import duckdb
import pytest

from packhorse_services.pipeline.storage.location import Location
from tests.harness.example_queries import (
    ANSWERS,
    QUERIES,
    answer,
    opened_as_documented,
    written,
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("tables")
    written(Location.parse(str(folder)))
    with opened_as_documented(str(folder)) as database:
        yield database


def test_every_question_has_an_answer() -> None:
    assert QUERIES.keys() == ANSWERS.keys()
    assert len(QUERIES) >= 10


@pytest.mark.parametrize("question", ANSWERS)
def test_duckdb_answers(database: duckdb.DuckDBPyConnection, question: str) -> None:
    found = database.sql(QUERIES[question]).to_arrow_table()
    assert answer(found) == ANSWERS[question]
