"""`packhorse report` and `packhorse pipeline`, on the tables and through the service."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from packhorse_services.cli import service_commands
from packhorse_services.cli.app import run
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.pipeline.storage.location import Location
from tests.harness.command_line import Up, packhorse_program, program
from tests.harness.imported import COMMAND_LINE
from tests.harness.measures import WHEN, measure
from tests.harness.processes import Process, Program, first_lines, running_programs

Reported = Callable[..., tuple[str, str]]
HOURS = ("--from", WHEN["from"], "--to", WHEN["to"])
WITHOUT_RIGHTS = """
import ctypes, os, runpy

if os.geteuid() == 0:  # without CAP_DAC_OVERRIDE, which lets root write everywhere
    libc, version = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
    rights = (ctypes.c_uint32 * 6)()
    assert libc.capget(version, rights) == 0
    for number in (0, 1):  # effective, permitted
        rights[number] &= ~2
    assert libc.capset(version, rights) == 0
runpy.run_module("packhorse_services.pipeline", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The service of reports on tables with a delivery more than fits one page."""
    tables = tmp_path_factory.mktemp("tables")
    rows = [{"subscriber": f"sub{number:05}"} for number in range(10_001)]
    measure(Location.parse(str(tables)), "delivery", *rows)
    measure(Location.parse(str(tables)), "slowest", {"path": "=/a,b"})
    with running_programs("", tables_url=str(tables)) as made:
        program = made.reports(tables_url=str(tables))
        made.start()
        yield program


@pytest.fixture
def reported(service: Program, monkeypatch: pytest.MonkeyPatch) -> Reported:
    """Return what a report is from the tables themselves, and through the service."""
    for name, text in service.environment.items():
        monkeypatch.setenv(name, text)

    def both(*arguments: str) -> tuple[str, str]:
        program = ("report", *arguments, *HOURS)
        tables = packhorse_program(*program).stdout
        return tables, packhorse_program(*program, "--pipeline", service.url).stdout

    return both


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_report_of_many_pages_is_one_document(reported: Reported, form: str) -> None:
    tables, served = reported("delivery", "--format", form)
    assert tables == served
    count = len(json.loads(tables)["rows"]) if form == "json" else len(tables.splitlines()) - 1
    assert count == 10_001


def test_the_forms_of_a_report(reported: Reported) -> None:
    text, served = reported("slowest", "--format", "csv")
    assert text == served
    assert '"\'=/a,b"' in text
    page, served = reported("slowest", "--format", "html")
    assert page == served
    assert page.startswith("<!DOCTYPE html>")


def test_the_service_shows_its_measures_to_who_has_a_token(service: Program) -> None:
    assert httpx.get(f"{service.url}/metrics", timeout=120).status_code == 401
    assert httpx.get(f"{service.url}/reports/delivery", timeout=120).status_code == 401


def test_reports_need_no_right_to_write(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    measure(Location.parse(str(tables)), "delivery", {"delivered": 4711})
    for folder in (tables, *tables.rglob("*/")):
        folder.chmod(0o555)
    limited = ("tests.harness.script", "-c", WITHOUT_RIGHTS)
    with running_programs("") as made:
        service = made.reports(tables_url=str(tables))
        service.command = (sys.executable, "-m", *limited, "serve")
        service.start()
        headers = {"Authorization": f"Bearer {made.token}"}
        served = httpx.get(
            f"{service.ready().url}/reports/delivery", params=WHEN, headers=headers, timeout=120
        )
        assert [row["delivered"] for row in served.json()["rows"]] == [4711]
        environment = {**os.environ, **service.environment}
        requested = program(*limited, "report", "delivery", *HOURS, environment=environment)
        assert "4711" in requested.stdout, requested.stderr
        refused = program(*limited, "measures", environment=environment)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "can't be written" in refused.stderr


def test_after_up_reports_need_no_setting(up: Up, tmp_path: Path) -> None:
    settings = DataDirectory(up.data).author_settings()
    early = packhorse_program("report", "delivery", data=up.data, check=False)
    assert (early.returncode, early.stdout) == (2, "")
    assert f"no archive at {settings['PACKHORSE_TABLES_URL']}" in early.stderr
    assert not Path(settings["PACKHORSE_TABLES_URL"]).exists()
    measure(Location.parse(settings["PACKHORSE_TABLES_URL"]), "delivery", {"delivered": 4711})
    assert "4711" in packhorse_program("report", "delivery", *HOURS, data=up.data).stdout
    assert "SUBSCRIBER" in packhorse_program("report", "delivery", data=up.data).stdout
    file = tmp_path / "report.html"
    packhorse_program(
        *("report", "delivery", *HOURS, "--format", "html", "--output", str(file)), data=up.data
    )
    assert "4,711" in file.read_text()
    assert sorted(json.loads(settings["PACKHORSE_SUBSCRIBER_DATABASES"])) == [
        "sub1",
        "sub2",
        "sub3",
    ]
    answer = httpx.get(
        f"{settings['PACKHORSE_PUBLISHER_URL']}/queues",
        headers={"Authorization": f"Bearer {settings['PACKHORSE_PUBLISHER_TOKEN']}"},
        timeout=120,
    )
    assert answer.status_code == 200
    checked = packhorse_program("config", "check", data=up.data).stdout
    assert settings["PACKHORSE_PUBLISHER_TOKEN"] not in checked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "delivery", "--from", "yesterday"), "RFC 3339"),
        (("report", "delivery", "--output", "x"), "--format"),
        (("pipeline", "nonsense"), "No such command"),
    ],
)
def test_what_is_wrong_is_said_with_exit_code_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACKHORSE_TABLES_URL", str(tmp_path / "tables"))
    done = packhorse_program(*arguments, data=tmp_path / "none", check=False)
    assert done.returncode == 2
    assert said in done.stderr


def test_help_is_that_of_the_service(tmp_path: Path) -> None:
    assert (
        "PACKHORSE_PORT" in packhorse_program("pipeline", "serve", "--help", data=tmp_path).stdout
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_task_is_ended_in_order(number: signal.Signals, tmp_path: Path) -> None:
    environment = {
        "PACKHORSE_TABLES_URL": str(tmp_path / "tables"),
        "PACKHORSE_TOKEN_FILE": str(tmp_path / "tokens.json"),
    }
    command = (sys.executable, "-m", COMMAND_LINE, "--data", str(tmp_path / "data"))
    serving = (*command, "pipeline", "serve", "--port", "0")
    process = Process("serve", serving, environment, tmp_path)
    process.start()
    try:
        [line] = first_lines(process, 1)
        url = json.loads(line)["url"]
        os.kill(process.pid, number)
        assert process.wait() == 0
    finally:
        process.kill()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/livez")


def test_where_the_pipeline_is_not_installed_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(service_commands, "find_spec", lambda name: None)
    assert run(["--data", str(tmp_path), "pipeline", "archive"]) == 2
    assert capfd.readouterr().err == (
        f"error: the pipeline needs pyspark: {sys.executable} -m pip install -e '.[pipeline]' in "
        "the folder of packhorse's sources\n"
    )
