"""The page of the pipeline, and one console over several jobs services."""

from collections.abc import Iterator

import pytest

from tests.harness.console import HOSTILE, ConsoleSite, console_site
from tests.harness.written_jobs import measured, written_work
from tests.harness.written_publisher import Pages, WrittenPublisher, written_publisher


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[WrittenPublisher]:
    with written_publisher() as written:
        yield written


@pytest.fixture(scope="module")
def served(elsewhere: WrittenPublisher) -> Iterator[ConsoleSite]:
    with written_publisher() as written:
        jobs = {"author": written.url, "sub2": elsewhere.url}
        with console_site(written, jobs_urls=jobs, pipeline_url=written.url) as site:
            yield site


@pytest.fixture
def site(served: ConsoleSite, elsewhere: WrittenPublisher) -> ConsoleSite:
    for written in (served.publisher, elsewhere):
        written.forget()
        written_work(written.answers)
    return served


def test_tasks_their_runs_and_what_was_measured_are_there(site: ConsoleSite) -> None:
    text = site.get("pipeline").text
    assert 'data-schedule="packhorse.pipeline.archive"' in text
    assert "no space left on device" in text
    assert text.index('data-measured="sub2"') < text.index('data-measured="web-1"')
    asked = [path for _, path, _, _ in site.publisher.requested]
    assert any("topic=packhorse%2Fpipeline%2F" in path for path in asked)
    site.publisher.requested.clear()
    site.get("pipeline/content")
    assert not any("/reports" in path for _, path, _, _ in site.publisher.requested), "not live"


def test_hours_are_added_up(site: ConsoleSite) -> None:
    hours = [measured("web-1", latency_p95_ms=None), measured("web-1", latency_p95_ms=2_500)]
    site.publisher.answers["GET /reports/delivery"]["rows"] = hours
    text = site.get("pipeline").text
    assert ">1624<" in text
    assert ">2.5 s<" in text


def test_hours_are_lines_broken_where_nothing_was_measured(site: ConsoleSite) -> None:
    text = site.get("pipeline").text
    assert 'aria-label="Delivered: at the end 1,624, at most 1,624 packages an hour"' in text
    assert "95 % within, at the slowest: at the end 4.8, at most 4.8 s" in text
    site.publisher.answers["GET /reports/delivery"]["rows"] = []
    assert "<figure>" not in site.get("pipeline").text


def test_the_document_of_all_reports_may_do_nothing_in_the_browser(site: ConsoleSite) -> None:
    hostile = b"<script>alert(1)</script>"
    site.publisher.answers["GET /reports/delivery.html"] = hostile
    answer = site.get("pipeline/report")
    assert (answer.status_code, answer.content) == (200, hostile)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "allow-scripts" not in policy
    assert site.get("pipeline/report", token=None).status_code == 303


def test_either_setting_is_enough_for_the_page(site: ConsoleSite) -> None:
    url = site.publisher.url
    with console_site(site.publisher, pipeline_url=url) as reports:
        text = reports.get("pipeline").text
        assert 'data-measured="sub2"' in text
        assert "PACKHORSE_JOBS_URLS" in text
        assert 'href="/pages/pipeline" aria-current="page"' in text
        assert 'href="/pages/jobs"' not in text
    with console_site(site.publisher, jobs_urls={"author": url}) as tasks:
        text = tasks.get("pipeline").text
        assert 'data-schedule="packhorse.pipeline.archive"' in text
        assert "PACKHORSE_PIPELINE_URL" in text


def test_a_report_of_several_pages_is_added_up_to_its_end(site: ConsoleSite) -> None:
    further = "/reports/delivery?from=a&to=b&cursor=c"
    day = site.publisher.answers["GET /reports/delivery"]
    pages = [([measured("web-1")], further), ([measured("web-1"), measured("sub2")], None)]
    site.publisher.answers["GET /reports/delivery"] = Pages(
        {**day, "rows": rows, "next": following} for rows, following in pages
    )
    text = site.get("pipeline").text
    assert ">1624<" in text
    assert 'data-measured="sub2"' in text
    asked = [path for _, path, _, _ in site.publisher.requested]
    assert further in asked, "of the same hours"


def test_the_report_is_there_where_the_jobs_service_is_away(site: ConsoleSite) -> None:
    away = {"type": "/problems/away", "title": "Away", "status": 503, "detail": "no database"}
    site.publisher.answers["GET /schedules"] = (503, away)
    text = site.get("pipeline").text
    assert "no database" in text
    assert 'data-measured="sub2"' in text
    assert "No worker has declared" not in text


def test_a_report_that_can_not_be_had_leaves_the_tasks(site: ConsoleSite) -> None:
    site.publisher.answers["GET /reports/delivery"] = (
        503,
        {"type": "/problems/away", "title": "Away", "status": 503, "detail": HOSTILE},
    )
    answer = site.get("pipeline")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert 'role="alert"' in answer.text
    assert 'data-schedule="packhorse.pipeline.archive"' in answer.text


def test_what_is_pressed_goes_to_the_service_that_is_looked_at(
    site: ConsoleSite, elsewhere: WrittenPublisher
) -> None:
    elsewhere.answers["POST /schedules/packhorse.pipeline.upkeep/resume"] = {}
    assert '<input type="hidden" name="at" value="sub2">' in site.get("pipeline?at=sub2").text
    done = site.post("schedules/packhorse.pipeline.upkeep/resume", at="sub2", back="pipeline")
    assert (done.status_code, done.headers["location"]) == (303, "/pages/pipeline?at=sub2")
    assert [path for _, path, _, _ in elsewhere.changes()] == [
        "/schedules/packhorse.pipeline.upkeep/resume"
    ]
    assert site.publisher.changes() == []
    assert site.post("schedules/x/resume", at="other").status_code == 404
    away = site.post("schedules/x/resume", at="", back="//elsewhere.example")
    assert "elsewhere.example" not in away.headers.get("location", "")


def test_what_the_service_refuses_is_said(site: ConsoleSite) -> None:
    problem = {"type": "/problems/forbidden", "title": "It may not", "status": 403}
    refusal = {**problem, "detail": "jobs below packhorse/ are the product's own"}
    site.publisher.answers["POST /schedules/packhorse.cleanup/fire"] = (403, refusal)
    refused = site.post("schedules/packhorse.cleanup/fire")
    assert (refused.status_code, "the product&#39;s own" in refused.text) == (403, True)
