"""Upkeep keeps what silver has not read yet, however old."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.upkeep import task
from packhorse_services.pipeline.upkeep.task import (
    RetentionPlan,
    expected,
    keep_up,
    plan,
)
from tests.harness.archive_site import ArchiveSite, archive_site

pytestmark = pytest.mark.spark


@pytest.fixture
def site(spark: SparkSession, database_url: str, tmp_path: Path) -> Iterator[ArchiveSite]:
    with archive_site(spark, database_url, tmp_path) as found:
        yield found


class BrokenOffError(Exception):
    """What a kill looks like from inside."""


def only_bronze(site: ArchiveSite) -> None:
    """Run the archive, and break it off in the middle of what silver writes."""

    def reached(here: str) -> None:
        if here == f"after {tables.PACKAGES}":
            raise BrokenOffError(here)

    with pytest.raises(TaskFailed):
        site.archive(reached=reached)


def planned(site: ArchiveSite) -> RetentionPlan:
    """Plan as if all that is there had expired."""
    later = datetime.now(UTC) + timedelta(days=30)
    spark, location = site.spark, site.location
    return plan(spark, location, None, retention_days=8, measures_days=None, now=later)


def keep(site: ArchiveSite) -> None:
    keep_up(site.spark, site.location, planned(site), lambda _: None)


def expire_all(site: ArchiveSite) -> int:
    """Let silver fall behind and everything expire; returns how many records bronze has left."""
    site.fill([0], "package", "status")
    site.archive()
    site.fill([1, 2], "package", "status")
    only_bronze(site)
    keep(site)
    return len(site.rows(tables.BRONZE))


def test_what_silver_has_not_read_is_kept(site: ArchiveSite) -> None:
    assert expire_all(site) == 9
    site.archive()
    assert site.places(tables.STATUSES) == [0, 2, 4]
    assert site.places(tables.PACKAGES) == [0, 1, 2]
    assert planned(site).unread_from is None
    assert sum(expected(site.spark, site.location, planned(site)).values()) > 0
    keep(site)
    assert site.rows(tables.BRONZE) == []


@pytest.mark.proof
def test_a_build_that_does_not_look_is_caught(
    site: ArchiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "first_unread", lambda *_: None)
    assert expire_all(site) == 0
