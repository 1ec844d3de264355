"""docs/tables.md has every column of every table, as the code defines it and Delta keeps it."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from packhorse_services.pipeline.storage.delta import prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.tables import MEANINGS
from tests.harness.table_notebook import NOTEBOOK, notebook
from tests.harness.table_page import OF_RUNS, PAGE, PREPARED, Column, columns, written

_TABLE = re.compile(r"### `(?P<name>[^`]+)`\n\n(?P<meaning>[^\n]+)\n\n(?P<rows>(?:\|[^\n]*\n)+)")
_ROW = re.compile(r"\| `([^`]+)` \| `([^`]+)` \| ([^|]*) \| ([^|]+) \|")


@pytest.fixture(scope="module")
def documented() -> Mapping[str, re.Match[str]]:
    return {found["name"]: found for found in _TABLE.finditer(PAGE.read_text())}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, DeltaTable]:
    location = Location.parse(str(tmp_path_factory.mktemp("tables")))
    prepare(location, PREPARED)
    return {name: stored(location, name) for name in PREPARED}


def _columns(found: re.Match[str]) -> Iterator[Column]:
    for name, kind, unit, meaning in _ROW.findall(found["rows"]):
        yield Column(name, kind, unit.strip(), meaning)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == written(), "run `make tables` and commit the result"
    assert NOTEBOOK.read_text() == notebook(), "run `make tables` and commit the result"


def test_the_page_has_every_table_and_no_other(documented: Mapping[str, re.Match[str]]) -> None:
    assert documented.keys() == PREPARED.keys() | OF_RUNS.keys()
    assert MEANINGS.keys() == PREPARED.keys()


@pytest.mark.parametrize("name", PREPARED)
def test_the_page_has_the_columns_that_delta_keeps(
    name: str, documented: Mapping[str, re.Match[str]], made: Mapping[str, DeltaTable]
) -> None:
    kept = StructType.fromJson(json.loads(made[name].schema().to_json()))
    assert list(_columns(documented[name])) == list(columns(kept))
    said = re.findall("`([^`]+)`", documented[name]["meaning"].partition("artitioned")[2])
    assert said == made[name].metadata().partition_columns
    assert documented[name]["meaning"].startswith(f"{made[name].metadata().description}. ")


@pytest.mark.parametrize("name", OF_RUNS)
def test_the_page_has_the_columns_of_what_a_run_writes(
    name: str, documented: Mapping[str, re.Match[str]]
) -> None:
    assert list(_columns(documented[name])) == list(columns(OF_RUNS[name][0]))


@pytest.mark.parametrize("name", [*PREPARED, *OF_RUNS])
def test_a_column_says_its_unit_where_it_counts(
    name: str, documented: Mapping[str, re.Match[str]]
) -> None:
    for column in _columns(documented[name]):
        if column.name.endswith("_ms"):
            assert column.unit in {"ms", "ms since 1970 UTC"}, column
        if column.name.endswith(("_length", "bytes")):
            assert column.unit == "bytes", column


def test_a_folder_of_tables_has_no_more_than_the_page(tmp_path: Path) -> None:
    prepare(Location.parse(str(tmp_path)), PREPARED)
    logs = {str(one.parent.relative_to(tmp_path)) for one in tmp_path.rglob("_delta_log")}
    assert logs == PREPARED.keys()
