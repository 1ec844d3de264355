"""How many tasks work is divided among, and how rows become batches."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from packhorse_services.pipeline import pieces

ROWS = pa.schema([pa.field("name", pa.string(), False), pa.field("size", pa.int64())])


def divided(master: str, count: int, most: int | None = None) -> tuple[list[int], int]:
    """Return the pieces that a session's tasks are given, and how many tasks there are."""
    found: list[int] = []
    asked: list[int] = []

    def all_tasks(start: int, end: int, step: int, tasks: int) -> SimpleNamespace:
        """Stand in for `range` of a session; what is mapped runs here, all tasks together."""
        asked.append(tasks)
        numbers = pa.array(range(start, end, step), pa.int64())
        batch = pa.RecordBatch.from_arrays([numbers], ["id"])
        return SimpleNamespace(mapInArrow=lambda run, _: list(run([batch])))

    def run(own: Iterable[int]) -> Iterator[pa.RecordBatch]:
        found.extend(own)
        yield from ()

    context = SimpleNamespace(master=master, defaultParallelism=12)
    spark = cast(SparkSession, SimpleNamespace(sparkContext=context, range=all_tasks))
    pieces.scattered(spark, [10 * n for n in range(count)], run, "n long", most)
    return found, asked[0]


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[32, 4]", 32), ("spark://there:7077", 12)],
)
def test_tasks_follow_from_the_cores_and_not_from_the_parallelism_of_a_local_session(
    master: str, cores: int
) -> None:
    assert divided(master, 100) == ([10 * n for n in range(100)], 2 * cores)


@pytest.mark.parametrize(("count", "most", "tasks"), [(5, None, 5), (9, 7, 7), (3, 7, 3)])
def test_no_more_tasks_than_pieces_or_than_are_allowed(
    count: int, most: int | None, tasks: int
) -> None:
    assert divided("local[4]", count, most)[1] == tasks


def test_nothing_runs_without_pieces() -> None:
    assert divided("local[4]", 0) == ([], 1)


def test_rows_become_batches_of_so_many_at_most() -> None:
    rows = [(str(n), n if n % 2 else None) for n in range(5)]
    found = list(pieces.batches(rows, ROWS, 2))
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert all(batch.schema == ROWS for batch in found)
    assert [tuple(row.values()) for batch in found for row in batch.to_pylist()] == rows


def test_a_batch_ends_with_the_row_that_makes_it_large() -> None:
    rows = [(str(size), size) for size in (1, 1, 8, 20, 3)]
    found = pieces.batches(rows, ROWS, 100, size=lambda row: row[1], most_size=10)
    assert [batch.num_rows for batch in found] == [3, 1, 1]


def test_no_rows_are_no_batch() -> None:
    assert list(pieces.batches([], ROWS, 2)) == []
