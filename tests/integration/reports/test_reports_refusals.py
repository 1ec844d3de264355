"""What the service of reports refuses, and how it says so."""

from typing import Any

import pytest

from packhorse.runtime.paging import write_cursor
from packhorse_services.pipeline.reports.query import write_key
from packhorse_services.pipeline.storage.location import Location
from tests.harness.measures import NOON, Reports, measure


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """One service for all, since none of these changes anything."""
    location = Location.parse(str(tmp_path_factory.mktemp("refusals") / "tables"))
    measure(location, "delivery", {})
    return Reports(location)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no time": ({"from": "yesterday"}, "query/from", "RFC 3339"),
    "an empty time": ({"to": ""}, "query/to", "RFC 3339"),
    "a number": ({"from": "1700000000"}, "query/from", "RFC 3339"),
    "a time without a zone": ({"to": "2026-11-21T00:00:00"}, "query/to", "RFC 3339"),
    "a plus sign that became a space": (
        {"from": "2026-11-21T00:00:00 01:00"},
        "query/from",
        "%2B",
    ),
    "a day that does not exist": ({"from": "2026-02-30T00:00:00Z"}, "query/from", "RFC 3339"),
    "a time before the first": ({"from": "0001-01-01T00:00:00+14:00"}, "query/from", "RFC 3339"),
    "a time before all packages": ({"from": "1605-11-05T00:00:00Z"}, "query/from", "1971"),
    "hours backwards": (
        {"from": "2026-11-21T10:00:00Z", "to": "2026-11-21T09:00:00Z"},
        "query/from",
        "not before",
    ),
    "too many hours": ({"from": "2026-01-01T00:00:00Z"}, "query/from", "92 days at most"),
    "too many rows": ({"limit": 10_001}, "query/limit", "10000"),
    "no rows": ({"limit": 0}, "query/limit", "1"),
    "another form": ({"format": "xml"}, "query/format", "json"),
    "a misspelt filter": ({"subscribers": "sub1"}, "query/subscribers", "unknown"),
    "an endless name": ({"subscriber": "x" * 201}, "query/subscriber", "200"),
}


@pytest.mark.parametrize(("query", "pointer", "said"), WRONG.values(), ids=WRONG)
def test_a_query_that_can_t_be_answered_is_422(
    reports: Reports, query: dict[str, Any], pointer: str, said: str
) -> None:
    answer = reports.get("/reports/delivery", **query)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert said in error["detail"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ä",
        "bm9uc2Vuc2U",
        write_key(["a", "b", "c"]),
        write_key([NOON, "sub1"]),
        write_key([NOON, "sub1", 5]),
        write_key([NOON, "sub1", "main", "more"]),
        write_key([2**62, "sub1", "main"]),
        write_key([True, "sub1", "main"]),
        write_key([NOON, "a\x00", "main"]),
        write_cursor(r'[1,"\ud800","main"]'),
        write_cursor('[1000000000000,"sub1","main"]'),
        "W" * 10_000,
    ],
)
def test_a_cursor_of_somebody_else_is_422(reports: Reports, cursor: str) -> None:
    answer = reports.get("/reports/delivery", cursor=cursor)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "query/cursor"


def test_a_cursor_is_a_value_and_never_sql(reports: Reports) -> None:
    cursor = write_key([NOON, "' OR true) --", ""])
    assert len(reports.rows("delivery", cursor=cursor)) == 1  # behind it by name, and only so
    assert reports.rows("delivery", cursor=write_key([NOON, "sub1", "main"])) == []
    assert reports.rows("delivery", cursor=write_key([NOON, "t\u200b\n", "main"])) == []


def test_publishing_has_no_subscribers(reports: Reports) -> None:
    assert reports.get("/reports/publishing", subscriber="sub1").status_code == 422


def test_a_list_of_etags_that_is_none_is_400(reports: Reports) -> None:
    answer = reports.get("/reports/delivery", headers={"If-None-Match": "nonsense"})
    assert answer.status_code == 400
