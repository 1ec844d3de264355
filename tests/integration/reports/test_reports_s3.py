"""Reports on tables in S3, and while S3 is away."""

import pytest

from packhorse_services.cli.stack.ports import free_port
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.example_queries import (
    ANSWERS,
    QUERIES,
    answer,
    opened_as_documented,
    written,
)
from tests.harness.measures import Reports, measure
from tests.harness.s3 import BUCKET, S3Server

pytestmark = pytest.mark.s3


def place(s3: S3Server, bucket: str = BUCKET, port: int | None = None) -> Location:
    endpoint = f"http://127.0.0.1:{port or s3.port}"
    return Location.parse(f"s3://{bucket}/reports?endpoint={endpoint}&allow_http=true")


def test_tables_in_s3_are_read(s3: S3Server) -> None:
    location = place(s3)
    reports = Reports(location)
    assert reports.rows("delivery") == []
    assert reports.get("/readyz").status_code == 200
    measure(location, "failures", {})  # the page has no plots without a delivery
    assert "<td>sub1</td>" in reports.get("/reports/delivery.html").text
    measure(location, "delivery", {"delivered": 7})
    assert [row["delivered"] for row in reports.rows("delivery")] == [7]


def test_tables_in_s3_open_in_duckdb_as_documented(s3: S3Server) -> None:
    location = Location.parse(f"s3://{BUCKET}/asked?endpoint={s3.endpoint}&allow_http=true")
    written(location, tables.DELIVERY)
    options = location.delta_options()
    question = "Which subscriber was slowest yesterday?"
    with opened_as_documented(location.shown, options) as database:
        found = database.sql(QUERIES[question]).to_arrow_table()
    assert answer(found) == ANSWERS[question]


def test_s3_that_is_away_is_503_soon(s3: S3Server) -> None:
    reports = Reports(place(s3, port=free_port()))
    for path in ("/reports/delivery", "/reports/delivery.html"):
        answer = reports.get(path)
        assert answer.status_code == 503
        assert "can't be read now" in answer.json()["detail"]
    assert reports.get("/readyz").status_code == 503


def test_a_bucket_that_is_not_there_is_no_empty_report(s3: S3Server) -> None:
    reports = Reports(place(s3, bucket="nobodys"))
    assert reports.get("/reports/delivery").status_code == 503
    assert reports.get("/readyz").status_code == 503
