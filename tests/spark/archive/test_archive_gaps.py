"""R2: what the journal forgot before it was archived stops the archive until it is accepted."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse.wire.record import Encoded
from packhorse_services.pipeline.archive.task import Choices
from packhorse_services.pipeline.errors import HistoryGap, TaskRefused
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import stored
from tests.harness.archive import append, everything_in
from tests.harness.archive_site import ArchiveSite, archive_site, journal_url

pytestmark = pytest.mark.spark


def first_on(*journals: str) -> pytest.MarkDecorator:
    """Let a test run on the first of these journals, and in `make chaos` on the others, too."""
    first, *others = journals
    marked = [pytest.param(one, marks=pytest.mark.depth) for one in others]
    return pytest.mark.parametrize("site", [first, *marked], indirect=True)


@pytest.fixture
def site(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[ArchiveSite]:
    with archive_site(spark, journal_url(request), tmp_path) as found:
        yield found


def gaps(site: ArchiveSite) -> set[tuple[str, int, int, int]]:
    return {
        (row["topic"], row["partition"], row["first_missing"], row["next_offset"])
        for row in site.rows(tables.GAPS)
    }


@first_on("sql", "kafka")
def test_r2_a_hole_stops_until_it_is_accepted(site: ArchiveSite) -> None:
    package, discovery = site.topics.package, site.topics.discovery
    site.fill(range(4), "package", "discovery")
    site.archive()
    site.fill(range(4, 10), "package", "discovery")
    number = site.journal.partition_of(discovery, "s-0")
    first = site.journal.bounds(discovery, number).next
    site.fill([10], "package", "discovery")
    site.journal.truncate(package, 7)
    site.journal.truncate(discovery, first, number)
    with pytest.raises(HistoryGap, match=rf"{package}/0 lacks offsets 4 to 6, .* --accept-gap"):
        site.archive()
    assert gaps(site) == set()
    site.archive(Choices(accept_gap=True))
    found = gaps(site)
    assert (package, 0, 4, 7) in found
    assert len(found) == 2
    archived = {(row["topic"], row["partition"], row["offset"]) for row in site.rows(tables.BRONZE)}
    assert archived >= set(everything_in(site.journal, site.topics))
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3, 7, 8, 9, 10]


@first_on("sql")
def test_announcements_that_were_forgotten_stop_nobody(site: ArchiveSite) -> None:
    discovery = site.topics.discovery
    site.fill([0], "discovery")
    number = site.journal.partition_of(discovery, "s-0")
    site.archive()
    site.fill([5, 10], "discovery")
    site.journal.truncate(discovery, 2, number)
    site.archive()
    assert gaps(site) == {(discovery, number, 1, 2)}
    assert sorted(row["announced_ms"] for row in site.rows(tables.ANNOUNCEMENTS)) == [0, 10]


@first_on("kafka", "sql")
def test_r2_a_hole_that_opens_during_the_run_is_named_too(site: ArchiveSite) -> None:
    """The records are large, so that no client has fetched the last ones with the first."""
    package = site.topics.package
    site.fill([0], "status")
    append(site.journal, [(package, None, Encoded({}, os.urandom(900_000)))] * 16)

    def reached(point: str) -> None:
        if point == "after bronze":
            site.journal.truncate(package, 15)

    with pytest.raises(HistoryGap, match=rf"{package}/0 lacks offsets \d+ to 14"):
        site.archive(Choices(accept_gap=True), reached=reached, max_offsets=2)  # no later one
    site.archive(Choices(accept_gap=True))
    assert max(site.places(tables.QUARANTINE)) == 15


@pytest.mark.depth  # the words: `test_archive_last_records.py`; a run: `test_archive_checkpoint.py`
@pytest.mark.parametrize("site", ["sql", "kafka"], indirect=True)
def test_r24_a_last_record_that_is_another_one_stops_the_archive(site: ArchiveSite) -> None:
    """As after a restore: what the archive holds is not what the journal has there."""
    command = site.topics.command
    site.fill(range(3), "package", "command")
    site.archive()
    number = site.journal.partition_of(command, "s-2")
    last = site.journal.bounds(command, number).next - 1
    where = f"topic = '{command}' AND partition = {number} AND offset = {last}"
    later = {"time": "time + INTERVAL '1 millisecond'"}
    assert (
        stored(site.location, tables.BRONZE).update(later, predicate=where)["num_updated_rows"] == 1
    )
    with pytest.raises(
        TaskRefused, match=rf"{command}/{number} has another record at offset {last}"
    ):
        site.archive()
    site.journal.truncate(command, last + 1, number)
    site.fill([4], "package")
    site.archive()
    assert site.places(tables.PACKAGES) == [0, 1, 2, 3]
