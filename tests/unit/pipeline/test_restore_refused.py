"""A restore that the author's database did not take: what is reported, and whether to try again."""

from typing import Any

import psycopg
import pytest

from packhorse.errors import PackhorseError
from packhorse_services.pipeline.at.restore import refused, restore
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused


class Nothing:
    """A data frame without rows."""

    def select(self, *_columns: str) -> "Nothing":
        return self

    def toLocalIterator(self, *, prefetchPartitions: bool) -> Any:  # noqa: N802, N803
        return iter(())


def test_a_database_that_is_away_has_changed_nothing() -> None:
    empty: Any = Nothing()
    with pytest.raises(TaskFailed, match="look at PACKHORSE_DATABASE_URL"):
        restore(empty, "/s", "postgresql://nobody@127.0.0.1:1/none")


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
