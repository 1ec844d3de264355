"""Reports show the columns that the measures are written with."""

from collections.abc import Mapping

import pytest
from pyspark.sql.types import StructType

from packhorse_services.pipeline.reports.schemas import REPORTS
from packhorse_services.pipeline.storage import schemas

_WRITTEN: Mapping[str, StructType] = {
    "delivery": schemas.DELIVERY,
    "failures": schemas.FAILURES,
    "slowest": schemas.SLOWEST,
    "publishing": schemas.PUBLISHING,
}
_KINDS = {
    "string": "string",
    "bigint": "integer",
    "int": "integer",
    "boolean": "boolean",
    "timestamp": "string",
}


def test_every_report_has_its_table() -> None:
    assert REPORTS.keys() == _WRITTEN.keys()


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_has_every_column_but_the_partition(name: str) -> None:
    assert set(REPORTS[name].columns) == set(_WRITTEN[name].fieldNames()) - {"day"}


@pytest.mark.parametrize("name", REPORTS)
def test_a_column_is_documented_as_what_it_is(name: str) -> None:
    shown = REPORTS[name].row.model_json_schema()["properties"]
    for field in _WRITTEN[name].fields:
        if field.name == "day":
            continue
        kinds = shown[field.name].get("anyOf", [shown[field.name]])
        assert kinds[0]["type"] == _KINDS[field.dataType.simpleString()], field.name
        assert ({"type": "null"} in kinds) == field.nullable, field.name
