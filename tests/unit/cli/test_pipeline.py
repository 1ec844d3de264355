"""`packhorse pipeline TASK` and `packhorse report`: what is reported before anything is started."""

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
import typer

from packhorse_services.cli import service_commands
from packhorse_services.cli.app import run
from packhorse_services.cli.client.connection import Connection
from packhorse_services.cli.stack.ports import free_port
from packhorse_services.pipeline.program import program
from tests.harness.answering import answering


@pytest.mark.parametrize(
    ("arguments", "meant", "said"),
    [
        (("archive", "--dataa", "x"), "--data", "packhorse pipeline TASK --data"),
        (("--dat=x", "archive"), "--data", "packhorse pipeline TASK --data"),
        (("bulk", "--tokenfile", "x"), "--token-file", "packhorse pipeline TASK --token-file"),
        (("archive", "--jornal", "x"), "--journal", "PACKHORSE_JOURNAL_URL"),
        (("audit", "--database", "x"), "--database", "PACKHORSE_DATABASE_URL"),
    ],
)
def test_an_option_of_another_command_is_recognised(
    arguments: tuple[str, ...],
    meant: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(service_commands, "pipeline", None)  # nothing is started
    assert run(["pipeline", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: a task of the pipeline has no option --")
    assert f"if you mean {meant}, " in line
    assert said in line


def test_no_option_of_a_task_is_taken_for_another_commands() -> None:
    tasks = typer.main.get_command(program()).commands  # type: ignore[attr-defined]
    options = {
        option
        for task in tasks.values()
        for one in task.params
        for option in one.opts
        if "-" in option
    }
    assert len(options) > 20
    service_commands.require_options_of_tasks([*sorted(options), "archive", "a path --data"])
    service_commands.require_options_of_tasks(["--", "--data"])


def test_a_service_of_reports_that_is_away_is_named_by_its_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert run(["report", "delivery", "--pipeline", url]) == 1
    reported = capsys.readouterr().err
    assert "is --pipeline right?" in reported
    assert "--server" not in reported


@pytest.mark.parametrize(
    ("publisher", "given"),
    [
        *((same, "of-the-stack") for same in (None, "http://127.0.0.1:1", "http://localhost:1/")),
        ("http://elsewhere:1", None),
    ],
)
def test_the_token_of_the_stack_goes_to_no_other_publisher(
    publisher: str | None, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://127.0.0.1:1"
    own = {"PACKHORSE_PUBLISHER_URL": url, "PACKHORSE_PUBLISHER_TOKEN": "of-the-stack"}
    (tmp_path / "author.json").write_text(json.dumps(own))
    if publisher:
        monkeypatch.setenv("PACKHORSE_PUBLISHER_URL", publisher)
    environments: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "call", lambda _, env: environments.append(env))
    service_commands.forward(Connection(tmp_path), "pipeline", ["bulk"])
    assert environments[0]["PACKHORSE_PUBLISHER_URL"] == (publisher or url)
    assert environments[0].get("PACKHORSE_PUBLISHER_TOKEN") == given


class _Empty(BaseHTTPRequestHandler):
    """A service that has measured nothing, and has reports of delivery only."""

    sent: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.sent.append(self.headers["Authorization"])
        known = self.path.startswith("/reports/delivery")
        as_csv = "format=csv" in self.path
        body = "hour,subscriber\r\n" if as_csv else json.dumps({"next": None, "rows": []})
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(body.encode() if known else b'{"title": "There is nothing here"}')


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with answering(_Empty) as url:
        yield url


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_served_report_without_a_row_asks_whether_the_name_is_right(
    url: str, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    requested = ["report", "delivery", "--pipeline", url, "--format", form]
    assert run([*requested, "--subscriber", "typo"]) == 0
    said = "nothing was measured of subscriber typo in these hours; is that its name?\n"
    assert capfd.readouterr().err.startswith(said)
    assert run(requested) == 0
    assert "is that its name" not in capfd.readouterr().err


def test_the_service_of_reports_gets_a_token_that_is_named_but_not_that_of_the_stack(
    url: str, tmp_path: Path
) -> None:
    _Empty.sent.clear()
    (tmp_path / "tokens.json").write_text("of-the-stack")
    for named in ([], ["--token", "named"]):
        assert run(["--data", str(tmp_path), *named, "report", "delivery", "--pipeline", url]) == 0
    assert _Empty.sent == [None, "Bearer named"]


def test_what_serves_no_reports_is_named_by_its_option(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "failures", "--pipeline", url]) == 3
    assert "--pipeline names another." in capfd.readouterr().err
