"""Reports over HTTP, on Delta tables."""

import csv
import io
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from packhorse_services.pipeline.storage.location import Location
from tests.harness.measures import NOON, Reports, measure

HOUR = timedelta(hours=1)
NAMES = ["delivery", "failures", "slowest", "publishing"]
HOSTILE = "it's \\ \" -- /* ; DROP TABLE report"


@pytest.mark.parametrize("name", NAMES)
def test_no_measures_yet_are_an_empty_report(reports: Reports, name: str) -> None:
    answer = reports.get(f"/reports/{name}")
    assert answer.status_code == 200
    assert answer.json() == {
        "from": "2026-11-21T00:00:00Z",
        "to": "2026-11-22T00:00:00Z",
        "next": None,
        "rows": [],
    }
    assert reports.get(f"/reports/{name}", format="csv").text.count("\n") == 1


def test_a_row_is_shown_as_it_is_in_the_table(reports: Reports, location: Location) -> None:
    measure(location, "delivery", {"latency_p50_ms": None, "latency_p95_ms": 4200, "bytes": 2**40})
    (row,) = reports.rows("delivery")
    assert row["hour"] == "2026-11-21T12:00:00Z"
    assert (row["subscriber"], row["publisher_agent"]) == ("sub1", "main")
    assert (row["latency_p50_ms"], row["latency_p95_ms"], row["bytes"]) == (None, 4200, 2**40)
    assert row["editable"] is True
    assert "day" not in row


@pytest.mark.parametrize("name", NAMES)
def test_each_report_has_the_rows_of_its_hours_only(
    reports: Reports, location: Location, name: str
) -> None:
    hours = [NOON - HOUR, NOON, NOON + HOUR]
    measure(location, name, *({"hour": hour} for hour in hours))
    requested = {"from": "2026-11-21T12:30:00Z", "to": "2026-11-21T12:31:00Z"}
    assert [row["hour"] for row in reports.rows(name, **requested)] == ["2026-11-21T12:00:00Z"]
    requested = {"from": "2026-11-21T12:00:00+01:00", "to": "2026-11-21T13:00:00+01:00"}
    assert [row["hour"] for row in reports.rows(name, **requested)] == ["2026-11-21T11:00:00Z"]


def test_the_last_24_hours_are_the_default(reports: Reports, location: Location) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    rows = [{"hour": now - 25 * HOUR}, {"hour": now, "subscriber": "now"}]
    measure(location, "delivery", *rows)
    found = reports.rows("delivery", **{"from": None, "to": None})
    assert [row["subscriber"] for row in found] == ["now"]


def test_filters_are_values_and_never_sql(reports: Reports, location: Location) -> None:
    measure(location, "delivery", {}, {"subscriber": HOSTILE}, {"publisher_agent": HOSTILE})
    assert len(reports.rows("delivery")) == 3
    assert len(reports.rows("delivery", subscriber=HOSTILE)) == 1
    assert len(reports.rows("delivery", publisher_agent=HOSTILE)) == 1
    assert reports.rows("delivery", subscriber="' OR 1=1 --") == []


def test_a_token_for_some_agents_shows_their_rows_only(
    reports: Reports, location: Location
) -> None:
    measure(location, "delivery", {}, {"publisher_agent": "bulk"}, {"publisher_agent": "other"})
    found = reports.rows("delivery", token="main,bulk")
    assert [row["publisher_agent"] for row in found] == ["bulk", "main"]
    assert reports.get("/reports/delivery", "main", publisher_agent="bulk").status_code == 403


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["json", "csv"])
def test_pages_give_every_row_once_in_order(
    reports: Reports, location: Location, name: str, form: str
) -> None:
    hours = [NOON + HOUR * number for number in range(3)]
    subscriptions = [
        {"hour": hour, "publisher_agent": agent} for hour in hours for agent in ("a'", "b")
    ]
    measure(location, name, *_several(name, subscriptions))
    whole = reports.rows(name)
    answer = reports.get(f"/reports/{name}", limit=4, format=form)
    paged = _rows_of(answer.text, form)
    while following := answer.links.get("next"):
        answer = reports.get(following["url"])
        assert answer.status_code == 200, answer.text
        paged += _rows_of(answer.text, form)
    assert [_reported(row) for row in paged] == [_reported(row) for row in whole]
    assert (
        len({tuple(_reported(row)) for row in whole})
        == len(whole)
        == len(_several(name, subscriptions))
    )


def _several(name: str, subscriptions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    more = {
        "failures": [{"reason": "one"}, {"reason": "two"}],
        "slowest": [{"rank": 1}, {"rank": 2}],
    }
    return [
        {**subscription, **one} for subscription in subscriptions for one in more.get(name, [{}])
    ]


def _rows_of(text: str, form: str) -> list[dict[str, Any]]:
    if form == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    import json

    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def _reported(row: dict[str, Any]) -> list[str]:
    plain = {True: "true", False: "false"}
    return [plain[v] if isinstance(v, bool) else str(v) for v in row.values()]


def test_a_page_goes_on_where_it_ended_also_when_rows_have_come(
    reports: Reports, location: Location
) -> None:
    measure(location, "delivery", {"subscriber": "b"}, {"subscriber": "d"})
    first = reports.get("/reports/delivery", limit=1)
    measure(location, "delivery", {"subscriber": "a"}, {"subscriber": "c"})
    rest = reports.get(first.links["next"]["url"].replace("limit=1", "limit=9")).json()["rows"]
    assert [row["subscriber"] for row in rest] == ["c", "d"]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/csv", "text/csv"),
        ("text/csv, application/json;q=0.5", "text/csv"),
        ("application/json, text/csv;q=0.9", "application/json"),
        ("text/html,*/*", "application/json"),
        ("text/csv;q=x", "application/json"),
    ],
)
def test_accept_chooses_the_form(reports: Reports, accept: str, kind: str) -> None:
    answer = reports.get("/reports/delivery", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["vary"] == "Accept"
    overruled = reports.get("/reports/delivery", headers={"Accept": accept}, format="csv")
    assert overruled.headers["content-type"].startswith("text/csv")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "  =1+1", "\r=1"])
def test_a_spreadsheet_runs_nothing_of_a_csv(
    reports: Reports, location: Location, text: str
) -> None:
    measure(location, "slowest", {"path": text, "latency_ms": -5})
    answer = reports.get("/reports/slowest", format="csv")
    (row,) = csv.DictReader(io.StringIO(answer.text, newline=""))
    assert row["path"] == "'" + text
    assert row["latency_ms"] == "-5"


def test_csv_keeps_commas_quotes_and_lines_in_their_cell(
    reports: Reports, location: Location
) -> None:
    measure(location, "failures", {"reason": 'a "b", c\r\nd'})
    text = reports.get("/reports/failures", format="csv").text
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["reason"] == 'a "b", c\r\nd'


@pytest.mark.parametrize("name", [*NAMES, "delivery.html"])
def test_the_etag_is_that_of_the_table_s_version(
    reports: Reports, location: Location, name: str
) -> None:
    table = name.removesuffix(".html")
    path = f"/reports/{name}"
    tag = reports.get(path).headers["etag"]
    earlier = {"hour": NOON - 48 * HOUR}  # of no hour that is asked for: no plots are made
    measure(location, table, earlier)
    before = reports.get(path).headers["etag"]
    assert before != tag
    unchanged = reports.get(path, headers={"If-None-Match": f'"other", {before}'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["etag"] == before
    measure(location, table, earlier)
    changed = reports.get(path, headers={"If-None-Match": before})
    assert (changed.status_code, changed.headers["etag"] == before) == (200, False)


def test_another_question_or_caller_has_another_etag(reports: Reports, location: Location) -> None:
    measure(location, "delivery", {})
    requested: list[dict[str, Any]] = [
        {},
        {"format": "csv"},
        {"subscriber": "sub1"},
        {"publisher_agent": "main"},
        {"limit": 5},
        {"to": "2026-11-21T20:00:00Z"},
        {"token": "main,bulk"},
    ]
    tags = [reports.get("/reports/delivery", **query).headers["etag"] for query in requested]
    assert len(set(tags)) == len(tags)


def test_a_table_made_anew_has_another_etag(reports: Reports, location: Location) -> None:
    measure(location, "delivery", {})
    before = reports.get("/reports/delivery").headers["etag"]
    shutil.rmtree(location.delta_uri("measures/delivery"))
    measure(location, "delivery", {"delivered": 99})
    assert reports.get("/reports/delivery").headers["etag"] != before


def test_a_place_that_is_gone_is_said_to_be_away(reports: Reports, location: Location) -> None:
    assert reports.get("/readyz").status_code == 200
    Path(location.base).rename(f"{location.base}-away")
    for name in [*NAMES, "delivery.html"]:
        answer = reports.get(f"/reports/{name}")
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert "Retry-After" in answer.headers


def test_a_table_of_another_version_is_named(reports: Reports, location: Location) -> None:
    write_deltalake(location.delta_uri("measures/delivery"), pa.table({"subscriber": ["a"]}))
    answer = reports.get("/reports/delivery")
    assert answer.status_code == 503
    detail = answer.json()["detail"]
    assert "measures/delivery lacks the column day" in detail
    assert "remove the folder measures, and run packhorse-pipeline measures --all" in detail
    assert reports.get("/reports/failures").status_code == 200


def test_a_table_that_lacks_a_file_is_away_and_no_fault(
    reports: Reports, location: Location
) -> None:
    measure(location, "delivery", {})
    for file in Path(location.base).rglob("*.parquet"):
        file.unlink()
    assert reports.get("/reports/delivery").status_code == 503
