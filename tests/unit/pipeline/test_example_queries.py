"""What docs/tables.md says about DuckDB: the tables open so, and each question is answered."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from packhorse_services.pipeline.storage.location import Location
from tests.harness.example_queries import (
    ANSWERS,
    QUERIES,
    answer,
    with_folder,
    written,
)
from tests.harness.table_notebook import code


def test_every_question_has_an_answer() -> None:
    assert QUERIES.keys() == ANSWERS.keys()
    assert len(QUERIES) >= 10


@pytest.mark.parametrize("question", ANSWERS)
def test_duckdb_answers(database: duckdb.DuckDBPyConnection, question: str) -> None:
    found = database.sql(QUERIES[question]).to_arrow_table()
    assert answer(found) == ANSWERS[question]


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    from matplotlib import pyplot, use  # half a second, in each worker that collects this file

    written(Location.parse(str(tmp_path)))
    use("agg")
    opening, *others = code()
    scope: dict[str, Any] = {}
    for cell in [with_folder(opening, str(tmp_path)), *others]:
        exec(cell.replace("current_date", "DATE '2026-01-02'"), scope)
    assert len(others) == len(QUERIES) + 1
    [drawn] = [pyplot.figure(one) for one in pyplot.get_fignums()]
    lines = {one.get_label(): list(one.get_ydata()) for one in drawn.axes[0].get_lines()}
    assert lines["fast"][:1] == [30]
    assert lines["slow"] == [700, 9_000]
    pyplot.close(drawn)
