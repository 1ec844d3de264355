"""docs/tables-grafana.json: every panel's question is one that the tables answer."""

import json
import re
from datetime import datetime
from itertools import combinations
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.harness.table_page import PAGE

DASHBOARD = json.loads(PAGE.with_name("tables-grafana.json").read_text())
PANELS: dict[str, dict[str, Any]] = {panel["title"]: panel for panel in DASHBOARD["panels"]}
TIME_SERIES = 0
_TIME_FILTER = re.compile(r"\$__timeFilter\(([^)]*)\)")
_FROM, _TO = "2026-01-01T00:00:00Z", "2026-01-01T23:59:59Z"


def asked(database: duckdb.DuckDBPyConnection, panel: dict[str, Any]) -> pa.Table:
    """Ask as Grafana does: its variables and its macros are replaced in the text before."""
    [variable] = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "subscriber"]
    names = [name for (name,) in database.sql(variable["query"]).fetchall()]
    text = panel["targets"][0]["rawSql"].replace("$subscriber", ",".join(f"'{n}'" for n in names))
    text = _TIME_FILTER.sub(rf"\1 >= '{_FROM}' AND \1 <= '{_TO}'", text)
    assert "$" not in text, text
    return database.sql(text).to_arrow_table()


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_has_rows(database: duckdb.DuckDBPyConnection, title: str) -> None:
    found = asked(database, PANELS[title])
    assert found.num_rows > 0
    if PANELS[title]["targets"][0]["format"] == TIME_SERIES:
        time, name, value = found.columns
        assert pa.types.is_timestamp(time.type)
        assert found.column_names[:2] == ["time", "subscriber"]
        assert pa.types.is_string(name.type)
        assert pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)
        moments: list[datetime] = time.to_pylist()
        assert moments == sorted(moments)


def test_the_slowest_subscriber_and_the_failures_are_those_of_the_page(
    database: duckdb.DuckDBPyConnection,
) -> None:
    slowest = asked(database, PANELS["Subscribers, slowest first"]).to_pylist()
    assert [row["subscriber"] for row in slowest] == ["idle", "narrow", "slow", "fast"]
    assert [row["worst_p95"] for row in slowest] == [None, None, 9_000, 30]
    failed = asked(database, PANELS["What failed, and why"]).to_pylist()
    assert [(row["subscriber"], row["failed_attempts"]) for row in failed] == [
        ("narrow", 5),
        ("slow", 2),
    ]


def test_columns_with_a_unit_are_there(database: duckdb.DuckDBPyConnection) -> None:
    for panel in PANELS.values():
        columns = asked(database, panel).column_names
        for override in panel["fieldConfig"]["overrides"]:
            assert override["matcher"]["options"] in columns


def test_panels_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS.values()}) == len(DASHBOARD["panels"])
    for one, other in combinations([panel["gridPos"] for panel in PANELS.values()], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
