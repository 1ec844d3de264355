"""The audit names subscribers that are live and that it was given no database of."""

import json
from pathlib import Path

import pytest

from packhorse.clock import SystemClock
from packhorse_services.pipeline.archive.reading import LATEST_MS
from packhorse_services.pipeline.audit.archived import unaudited
from packhorse_services.pipeline.audit.commands import report
from packhorse_services.pipeline.audit.outcome import Audited
from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location
from tests.harness.history import BEGIN_MS, announcements

DAY_MS = 24 * 3600 * 1000


def test_who_announced_itself_within_a_day_and_has_no_database_is_named(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    prepare(location)
    assert unaudited(location, ["known"]) == []
    announcements(
        location,
        ("gone", BEGIN_MS - 1),
        ("quiet", BEGIN_MS),
        ("gone", BEGIN_MS - 5),
        ("known", BEGIN_MS + DAY_MS),
        ("new", BEGIN_MS + DAY_MS - 1),
        ("quiet", BEGIN_MS - 7),
    )
    assert unaudited(location, ["known", "never"]) == ["new", "quiet"]
    assert unaudited(location, ["known", "new", "quiet"]) == []


def test_a_time_to_come_hides_nobody(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    prepare(location)
    soon_ms = SystemClock().wall_ms() + 3_600_000  # the day may have begun
    announcements(location, ("live", BEGIN_MS), ("odd", LATEST_MS), ("early", soon_ms))
    assert unaudited(location, ["known"]) == ["live"]


@pytest.mark.parametrize("as_json", [False, True])
def test_they_are_reported_in_the_report_and_on_stderr(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report("audit-1", [Audited("known")], ["new", "quiet"], as_json=as_json)
    said = capsys.readouterr()
    assert said.err.startswith("not audited: new, quiet; live, but not in PACKHORSE_SUBSCRIBER_DA")
    assert len(said.err.splitlines()) == 1
    if as_json:
        assert json.loads(said.out)["not_audited"] == ["new", "quiet"]
    else:
        assert said.out.splitlines()[-2:] == ["new: not audited", "quiet: not audited"]
    report("audit-1", [Audited("known")], [], as_json=as_json)
    assert capsys.readouterr().err == ""
