"""`packhorse get jobs|schedules` and `packhorse job add|retry|stop`: what they ask and show."""

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from packhorse_services.cli.app import app
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.client.failures import CommandFailed, Exit
from packhorse_services.cli.client.views import Format
from packhorse_services.cli.jobs import commands, views
from tests.unit.cli.jobs_service import Service, job

_AT = "2026-01-01T12:00:00Z"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(service: Service, *arguments: str) -> Any:
        monkeypatch.setattr(Connection, "jobs", lambda _: service)
        return CliRunner().invoke(app, arguments)

    return run


def test_jobs_are_asked_for_by_filter_page_by_page(run: Any) -> None:
    first = {"jobs": [job(n) for n in range(200)], "next": "/jobs?limit=200&cursor=u-199"}
    second = {"jobs": [job(n) for n in range(200, 250)], "next": "/jobs?limit=50&cursor=u-249"}
    service = Service(first, second)
    done = run(
        service, "get", "jobs", "--state", "queued", "--topic", "images/**", "--where", "size>=10",
        "--where", "color=red", "--limit", "250", "-o", "name",
    )  # fmt: skip
    assert done.exit_code == 0
    requested = [httpx.URL(path) for path, _ in service.requested]
    assert dict(requested[0].params) == {
        "state": "QUEUED",
        "topic": "images/**",
        "template": '{">=size": 10, "=color": "red"}',
        "limit": "200",
    }
    assert dict(requested[1].params) == {"limit": "50", "cursor": "u-199"}
    assert done.stdout.split() == [str(n) for n in range(250)]


def test_a_condition_that_is_none_is_a_usage_error(run: Any) -> None:
    done = run(Service(), "get", "jobs", "--where", "size!10")
    assert isinstance(done.exception, CommandFailed)
    assert done.exception.code == Exit.USAGE


def test_what_a_consumer_said_can_not_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reported = {"step": 3, "steps": 10, "eta": None, "message": "\x1b[2J[bold]thumb"}
    document = {
        "jobs": [job(1, "ACTIVE", progress=reported), job(2, "ERROR", result_message="no\nway")],
        "next": None,
    }
    commands._show(document, "jobs", Format.TABLE)
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["NUMBER", "STATE", "TOPIC"]
    assert first.rstrip().endswith("3 of 10: \\x1b[2J[bold]thumb")
    assert second.rstrip().endswith("no\\nway")


def test_a_job_is_shown_with_its_attempts(run: Any) -> None:
    attempt = {"number": 1, "outcome": "LOST", "instance": "w1", "ended_at": _AT, "reason": "gone"}
    done = run(Service(job(7, "QUEUED", past_attempts=[attempt])), "get", "job", "7")
    assert "ATTEMPT   OUTCOME" in done.stdout
    assert "LOST" in done.stdout


def test_names_and_json_for_scripts(run: Any) -> None:
    assert run(Service(job(7)), "get", "job", "7", "-o", "name").stdout == "7\n"
    assert json.loads(run(Service(job(7)), "get", "job", "7", "-o", "json").stdout) == job(7)


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        ({"cron": "0 2 * * *", "time_zone": "UTC"}, "0 2 * * *"),
        ({"cron": "0 2 * * *", "time_zone": "Europe/Berlin"}, "0 2 * * * (Europe/Berlin)"),
        ({"period_s": 43_200.0}, "every 12 h"),
        ({"at": _AT}, f"at {_AT}"),
    ],
)
def test_a_schedule_says_when_and_what(when: dict[str, Any], shown: str) -> None:
    given = {"cron": None, "period_s": None, "at": None, "action": "JOB", "topic": "a/b", **when}
    row = views.schedule_row(given)
    assert (row["when"], row["gives"]) == (shown, "job a/b")


def test_a_queue_with_more_than_is_counted_says_so(run: Any) -> None:
    few = {"queued": 3, "active": 1, "has_more": False, "succeeded": 0, "cancelled": 0}
    queue = {"patterns": ["**"], "type": "ORDERED", "suspended": False}
    queues = [
        {**queue, "name": "main", "statistics": few},
        {**queue, "name": "mail", "statistics": {**few, "queued": 10_000, "has_more": True}},
    ]
    result = run(Service({"queues": queues}), "get", "job-queues")
    assert "10000+" in result.output
    assert " 3 " in result.output


def test_a_job_is_added_and_its_number_printed(run: Any) -> None:
    service = Service({"verdict": "UPDATED", "job": job(7)})
    done = run(
        service, "job", "add", "images/thumbnail", "--properties", '{"size": 3}', "--id", "a",
        "--application", "web", "--priority", "5", "--delay", "2.5",
    )  # fmt: skip
    assert done.exit_code == 0
    assert done.stdout == "7\n"
    assert "has the new properties" in done.stderr
    [(path, body)] = service.requested
    assert path == "/jobs"
    assert body == {
        "topic": "images/thumbnail",
        "properties": {"size": 3},
        "id": "a",
        "application": "web",
        "priority": 5,
        "delay_s": 2.5,
    }


@pytest.mark.parametrize("properties", ["", "[1]", "{", "3"])
def test_properties_are_a_json_object(run: Any, properties: str) -> None:
    done = run(Service(), "job", "add", "a", "--properties", properties)
    assert isinstance(done.exception, CommandFailed)
    assert done.exception.code == Exit.USAGE


def test_retrying_and_stopping(run: Any) -> None:
    service = Service(job(7), job(8, "ACTIVE", instance="w1", stop_requested=True))
    retried, stopped = run(service, "job", "retry", "7"), run(service, "job", "stop", "8")
    assert [path for path, _ in service.requested] == ["/jobs/7/retry", "/jobs/8/stop"]
    assert (retried.stdout, stopped.stdout) == ("7\n", "8\n")
    assert "w1 is asked to stop it" in stopped.stderr
