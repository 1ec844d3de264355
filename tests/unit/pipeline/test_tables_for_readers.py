"""The tables of the pipeline, opened by what people read tables with: a filter finds its rows."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION, rows
from tests.harness.depth import at_depth
from tests.harness.readable_tables import WRITTEN, filters, made

FEW = at_depth(full=False, gate=True)
"""Whether to ask those for one column of each type alone who open the table for each question."""


@pytest.fixture(scope="module", params=WRITTEN)
def table(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DeltaTable, pa.Table]:
    return made(Location.parse(str(tmp_path_factory.mktemp("tables"))), request.param)


def test_pyarrow_and_pandas_find_what_a_filter_means(table: tuple[DeltaTable, pa.Table]) -> None:
    stored, whole = table
    opened = stored.to_pyarrow_dataset()
    for column, one, count in filters(whole):
        assert opened.to_table(filter=pc.field(column) == one).num_rows == count, (column, one)
    for column, one, count in filters(whole, one_of_a_type=FEW):
        wanted = [(column, "=", one)]
        assert len(stored.to_pandas(filters=wanted)) == count, wanted


def test_nulls_are_found(table: tuple[DeltaTable, pa.Table]) -> None:
    stored, whole = table
    opened = stored.to_pyarrow_dataset()
    for column in whole.schema.names:
        found = opened.to_table(filter=pc.field(column).is_null())
        assert found.num_rows == whole.column(column).null_count, column


def test_duckdb_and_datafusion_find_what_a_filter_means(
    table: tuple[DeltaTable, pa.Table],
) -> None:
    stored, whole = table
    with duckdb.connect() as database:
        database.register("given", stored.to_pyarrow_dataset())
        for column, one, count in filters(whole):
            query = f'SELECT count(*) FROM given WHERE "{column}" = ?'
            assert database.execute(query, [one]).fetchone() == (count,), (column, one)
    for column, one, count in filters(whole, one_of_a_type=FEW):
        literal = str(one) if isinstance(one, int) else f"'{one}'"
        query = f'SELECT count(*) AS found FROM {RELATION} WHERE "{column}" = {literal}'
        assert [row["found"] for row in rows(stored, query)] == [count], query
