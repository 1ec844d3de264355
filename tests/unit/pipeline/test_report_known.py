"""A report of a name that the tables have no measures of says so, for the name may be wrong."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from packhorse_services.pipeline.errors import NotThere, TaskRefused
from packhorse_services.pipeline.program import program
from packhorse_services.pipeline.storage.location import Location
from tests.harness.measures import WHEN, measure

HOURS = ("--from", WHEN["from"], "--to", WHEN["to"])
LATER = ("--from", WHEN["to"], "--to", "2026-11-23T00:00:00Z")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKHORSE_TABLES_URL", str(tmp_path))
    location = Location.parse(str(tmp_path))
    measure(location, "failures", {"subscriber": "o'hara"})
    measure(location, "publishing", {"publisher_agent": "bulk"})


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("form", ["json", "csv", "html"])
@pytest.mark.parametrize(
    ("requested", "what"),
    [(("--subscriber", "typo"), "subscriber 'typo'"), (("--agent", "x"), "publisher agent 'x'")],
)
def test_a_name_of_nobody_is_refused(form: str, requested: tuple[str, str], what: str) -> None:
    ended = CliRunner().invoke(
        program("report"), ["report", "delivery", *HOURS, "--format", form, *requested]
    )
    assert isinstance(ended.exception, NotThere)
    assert str(ended.exception).startswith(
        f"the tables have no measures of {what}; correct the name"
    )
    assert ended.stdout == ""


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("requested", [("--subscriber", "o'hara"), ("--agent", "bulk")])
def test_who_was_silent_in_these_hours_has_an_empty_report(requested: tuple[str, str]) -> None:
    for hours in (HOURS, LATER):
        ended = CliRunner().invoke(program("report"), ["report", "delivery", *hours, *requested])
        assert ended.exit_code == 0, ended.exception
        assert '"rows": []' in ended.stdout


@pytest.mark.usefixtures("measured")
def test_a_report_is_written_to_a_file_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"
    requested = ["report", "failures", *HOURS, "--format", "csv", "--output", str(file)]
    assert CliRunner().invoke(program("report"), requested).exit_code == 0
    assert "o'hara" in file.read_text()
    ended = CliRunner().invoke(
        program("report"), [*requested[:-1], str(tmp_path / "none" / "report.csv")]
    )
    assert isinstance(ended.exception, TaskRefused)
    assert "can't be written: No such file or directory" in str(ended.exception)
