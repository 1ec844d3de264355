"""Which hours a report is of, and what is said of those that are none."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from packhorse_services.pipeline.__main__ import main
from packhorse_services.pipeline.reports.query import WrongPeriod, period

NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)


def test_hours_are_whole_and_by_default_the_last_24() -> None:
    assert period(None, None, NOW) == (
        datetime(2026, 11, 20, 11, tzinfo=UTC),
        datetime(2026, 11, 21, 11, tzinfo=UTC),
    )
    assert period("2026-11-21T08:59:00+01:00", "2026-11-21T09:00:00Z", NOW) == (
        datetime(2026, 11, 21, 7, tzinfo=UTC),
        datetime(2026, 11, 21, 9, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("begin", "end", "name"),
    [("yesterday", None, "from"), (None, "2026-11-21T00:00:00", "to"), (None, "", "to")],
)
def test_what_is_no_time_is_reported_by_its_name(
    begin: str | None, end: str | None, name: str
) -> None:
    with pytest.raises(
        WrongPeriod, match=f"^{name}: a moment is a date and time with a time zone "
    ) as wrong:
        period(begin, end, NOW)
    assert "URL" not in str(wrong.value)


def test_the_command_names_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACKHORSE_TABLES_URL", str(tmp_path))
    arguments = ["packhorse-pipeline", "report", "delivery", "--from", "2026-11-21 10:00"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    reported = capsys.readouterr().err
    assert reported.startswith("error: --from: a moment is a date and time with a time zone ")
