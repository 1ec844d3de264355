"""Who reads an archive refuses a place that has none, and makes nothing there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from packhorse_services.pipeline.bulk.state import BulkState
from packhorse_services.pipeline.engine.exit_codes import FAILED, exit_code
from packhorse_services.pipeline.errors import TablesUnusable, TaskFailed
from packhorse_services.pipeline.program import program
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.archive_location import archive_at
from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location, store_error
from tests.harness.measures import measure

READING = (
    ("at", "--path", "/a", "--offset", "1"),
    ("snapshot",),
    ("audit",),
    ("measures",),
    ("upkeep",),
    ("report",),
)


@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: str(arguments[0]))
def test_a_reader_makes_nothing_where_there_is_no_archive(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "TABLES_URL": str(tmp_path / "typo" / "tables"),
        "BLOBS_URL": str(tmp_path / "blobs"),
        "SUBSCRIBER_DATABASES": '{"sub": "postgresql://nobody@127.0.0.1:1/none"}',
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PACKHORSE_{name}", value)
    refused = CliRunner().invoke(program(), arguments)
    assert isinstance(refused.exception, TablesUnusable), refused.output
    said = str(refused.exception)
    assert said.startswith(f"there is no archive at {tmp_path}/typo/tables; check PACKHORSE_TABLES")
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_place_is_shown_as_the_setting_names_it() -> None:
    assert Location.parse("/some/tables", only_read=True).shown == "/some/tables"
    assert Location.parse("s3://bucket/some/tables?region=x").shown == "s3://bucket/some/tables"


def test_a_folder_of_something_else_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "bronze").mkdir()
    (tmp_path / "bronze" / "notes.txt").write_text("none")
    with pytest.raises(TablesUnusable, match="no archive"):
        archive_at(str(tmp_path))
    with pytest.raises(TablesUnusable, match="no archive"):
        archive_at(f"{tmp_path}/bronze/notes.txt", only_read=True)


@pytest.mark.parametrize("time", ["yesterday", "2026-05-01", "2026-05-01T12:00:00"])
def test_a_time_of_the_history_needs_a_time_zone(time: str) -> None:
    refused = CliRunner().invoke(program(), ["at", "--path", "/a", "--time", time])
    assert refused.exit_code == 2
    assert "with a time zone" in refused.output


def test_an_archive_is_found_and_measures_alone_only_by_who_asks_for_them(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    measure(location, "delivery", {})
    with pytest.raises(TablesUnusable, match="no archive"):
        archive_at(location.base)
    assert archive_at(location.base, or_else=[tables.DELIVERY]) == location
    prepare(location)
    assert archive_at(location.base) == location


def test_only_a_reader_takes_an_archive_that_cant_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    prepare(location)
    monkeypatch.setattr(os, "access", lambda *_: False)  # rights mean nothing to root
    assert archive_at(location.base, only_read=True) == location
    with pytest.raises(TablesUnusable, match="can't be written"):
        archive_at(location.base)


AWAY = "s3://bucket/tables?endpoint=http://127.0.0.1:9&allow_http=true"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: archive_at(AWAY),
        lambda: prepare(Location.parse(AWAY)),
        lambda: BulkState(Location.parse(AWAY), "b").prepared(),
    ],
    ids=["read", "make", "bulk"],
)
def test_a_store_that_is_away_may_be_back_when_the_task_runs_again(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = {**Location.parse(AWAY).delta_options(), "max_retries": "1"}
    monkeypatch.setattr(Location, "delta_options", lambda _: impatient)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    with pytest.raises(
        TaskFailed, match=r"Connection refused.*; run it again, and .* the cred"
    ) as failed:
        ask()
    assert exit_code(failed.value) == FAILED
    assert str(failed.value).isprintable()


def test_a_full_disk_may_have_room_when_the_task_runs_again() -> None:
    said = OSError("Generic LocalFileSystem error: No space left on device (os error 28)")
    assert isinstance(store_error("x", said), TaskFailed)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest/api/token", "http://169.254.170.2/v2/credentials"]
)
def test_credentials_that_nobody_gave_are_for_somebody_to_give(url: str) -> None:
    said = OSError(f"Generic S3 error: Error performing PUT {url} in 181s, after 10 retries")
    error = store_error("x", said)
    assert isinstance(error, TablesUnusable)
    assert "the credentials when it is on S3" in str(error)
