"""A restore that the author's database did not take: what is reported, and whether to try again."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from packhorse.errors import PackhorseError
from packhorse_services.pipeline.at.task import refused, restore
from packhorse_services.pipeline.engine import session
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused
from packhorse_services.pipeline.program import program
from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location

AWAY = "postgresql://nobody@127.0.0.1:1/none"


class Frame:
    """A data frame of one row, or one that fails when it is read."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def select(self, *_columns: str) -> "Frame":
        return self

    def count(self) -> int:
        if self._error is not None:
            raise self._error
        return 1

    def toLocalIterator(self, *, prefetchPartitions: bool) -> Any:  # noqa: N802, N803
        return iter(())


def test_a_database_that_is_away_has_changed_nothing() -> None:
    frame: Any = Frame()
    with pytest.raises(TaskFailed, match="look at PACKHORSE_DATABASE_URL"):
        restore(frame, "/s", AWAY)


def test_the_content_is_read_before_the_author_is_connected_to() -> None:
    """Reading it may take long, and nobody else may write while the tree is locked."""
    frame: Any = Frame(TaskRefused("the archive is away"))
    with pytest.raises(TaskRefused, match="the archive is away"):
        restore(frame, "/s", AWAY)


def test_a_wrong_database_is_told_before_the_past_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begins(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "running_spark", begins)
    prepare(Location.parse(str(tmp_path)))
    for name, value in {"TABLES": str(tmp_path), "BLOBS": str(tmp_path), "DATABASE": AWAY}.items():
        monkeypatch.setenv(f"PACKHORSE_{name}_URL", value)
    command = ["at", "--path", "/s", "--offset", "1", "--restore"]
    ended = CliRunner().invoke(program("at"), command)
    assert isinstance(ended.exception, TaskFailed)
    assert "look at PACKHORSE_DATABASE_URL" in str(ended.exception)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            psycopg.OperationalError("it is gone\nagain"),
            TaskFailed,
            "gone; it is not known whether",
        ),
        (psycopg.errors.LockNotAvailable("a lock"), TaskFailed, "failed: a lock; it is not known"),
        (psycopg.errors.CheckViolation("a node\nDETAIL: x"), TaskRefused, "refuses: a node; no"),
        (psycopg.errors.CheckViolation(), TaskRefused, "refuses: CheckViolation; nothing"),
    ],
    ids=["lost", "waited", "refused", "without a word"],
)
def test_it_is_reported_in_a_line(
    error: psycopg.Error, kind: type[PackhorseError], said: str
) -> None:
    found = refused(error)
    assert type(found) is kind
    assert said in str(found)
    assert "\n" not in str(found)
