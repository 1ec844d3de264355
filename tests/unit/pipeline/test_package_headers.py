"""What is asked of the headers of all packages, answered without Spark."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.wire.package_codec import AGENT_HEADER
from packhorse_services.pipeline.archive.reading import as_batch
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.errors import NotThere, TablesUnusable, TaskFailed
from packhorse_services.pipeline.history import headers
from packhorse_services.pipeline.history.headers import (
    AgentPackages,
    PackageHeaders,
    agents_of,
    header,
    ids_at,
    reaches,
)
from packhorse_services.pipeline.history.packages import batches_of
from packhorse_services.pipeline.history.read import bronze_version
from packhorse_services.pipeline.history.target import target
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import TOPICS
from tests.harness.history import BEGIN_MS, JOURNAL, History, archive
from tests.harness.subscriber import page

AGENTS = ("main", "second", "third")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """Three packages of two agents, the second for two subscribers by name, and one of nobody."""
    blobs = open_blobs(str(tmp_path / "blobs"))
    made = History(blobs)
    made.add(page("/a", 1))
    made.add(page("/b", 1), to=("sub1", "sub2"))
    made.agent = "second"
    made.add(page("/c", 1), to=("sub2",))
    made.raw(b"", {})
    yield made
    blobs.close()


@pytest.fixture(params=[1, 2])
def location(request: pytest.FixtureRequest, history: History, tmp_path: Path) -> Location:
    """Their archive in one file or two, and beside it an older journal with the same offsets."""
    place = Location.parse(str(tmp_path / "tables"))
    archive(place, history.records[:2], "older")
    for number in range(request.param):
        archive(place, history.records[number :: request.param])
    return place


def test_each_agent_has_its_bounds_and_the_point_that_is_asked_for(location: Location) -> None:
    version = bronze_version(location, TOPICS.package)
    found = {one.publisher_agent: one for one in agents_of(location, version, offset=1)}
    assert found.keys() == {"main", "second", None}
    of_journal = [one for one in agents_of(location, version) if one.publisher_agent == "main"]
    assert {one.journal_id for one in of_journal} == {JOURNAL, "older"}
    since, until = BEGIN_MS + 2_000, BEGIN_MS + 2_000
    assert found["second"] == AgentPackages(JOURNAL, "second", 2, 2, since, until, None, 2)
    late = datetime.fromtimestamp(BEGIN_MS / 1000 + 2, UTC)
    by_time = {one.publisher_agent: one for one in agents_of(location, version, time=late)}
    assert (by_time["second"].wanted, by_time["second"].following) == (2, None)
    assert (by_time[None].wanted, by_time[None].following) == (None, 3)


def test_a_journal_s_packages_are_told_from_another_s(location: Location) -> None:
    version = bronze_version(location, TOPICS.package)
    assert [reaches(location, version, JOURNAL, at) for at in (0, 3, 4)] == [True, True, False]
    assert not reaches(location, version, "older", 2)
    assert ids_at(location, version, JOURNAL, 2) == ["dstrpck-2-0000000000000002"]
    assert ids_at(location, version, JOURNAL, 3) == [""]
    assert ids_at(location, version, "older", 3) == []
    asked = PackageHeaders(location, JOURNAL, version)
    assert asked.firsts == {"main": 0, "second": 2, None: 3}


def test_a_file_is_read_once_and_only_for_the_versions_that_have_it(
    location: Location, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(location: Location, file: str, *given: list[str]) -> Iterator[pa.RecordBatch]:
        read.append(file)
        return batches_of(location, file, *given)

    monkeypatch.setattr(headers, "batches_of", counted)
    before = bronze_version(location, TOPICS.package)
    asked = [PackageHeaders(location, JOURNAL, before) for _ in range(2)]
    assert [one.named_for("sub2", AGENTS) for one in asked] == [[1, 2]] * 2
    agents = agents_of(location, before)
    assert sorted(read) == sorted({*read})

    history.agent = "third"
    history.add(page("/d", 1), to=("sub2",))
    files = len(read)
    archive(location, history.records[4:])
    after = PackageHeaders(location, JOURNAL, bronze_version(location, TOPICS.package))
    assert (after.named_for("sub2", AGENTS), after.firsts["third"]) == ([1, 2, 4], 4)
    assert len(read) == files + 1
    assert agents_of(location, before) == agents
    assert len(read) == files + 1


def test_r35_packages_for_named_subscribers_are_found_by_their_names(location: Location) -> None:
    headers = PackageHeaders(location, JOURNAL, bronze_version(location, TOPICS.package))
    found = [headers.named_for(name, AGENTS) for name in ("sub1", "sub2", "sub3")]
    assert found == [[1], [1, 2], []]
    assert [headers.named_for("sub2", [agent]) for agent in AGENTS] == [[1], [2], []]
    assert headers.named_alone("sub1", "sub2", AGENTS) == {2}
    assert not headers.named_alone("sub1", "sub2", ["main"])
    older = PackageHeaders(location, "older", headers.version)
    assert older.named_for("sub2", AGENTS) == [1]


def test_the_newest_package_is_the_one_at_the_last_offset_of_its_agents(location: Location) -> None:
    newest = target(location, TOPICS.package, agents=("main",))
    assert (newest.offset, newest.package_id) == (1, "dstrpck-1-0000000000000001")
    assert newest.firsts == {"main": 0, "second": 2, None: 3}


def test_the_package_topic_may_have_any_name(history: History, tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "tables"))
    packages = [replace(one, topic="content") for one in history.records]
    archive(location, packages)
    statuses = [replace(one, topic="content_package", offset=7) for one in packages]
    archive(location, statuses, "journal-of-statuses")
    newest = target(location, "content", agents=("main",))
    assert (newest.journal_id, newest.offset) == (JOURNAL, 1)
    assert {one.last for one in agents_of(location, newest.version)} == {1, 2, 3}
    assert not reaches(location, newest.version, JOURNAL, 4)
    with pytest.raises(NotThere, match=r"no package left in topic other: .*PACKHORSE_TOPIC_"):
        target(location, "other")


def test_of_two_headers_of_a_name_the_last_one_counts(history: History) -> None:
    shape = as_batch(history.records, JOURNAL).schema.field("headers").type
    named = [[b"a", b"b"], [], [b"c", None], [b"d"]]
    rows = [[{"key": AGENT_HEADER, "value": one} for one in values] for values in named]
    rows[3].append({"key": "other", "value": b"e"})
    found = header(pa.array([None, *rows], shape), AGENT_HEADER)
    assert found.to_pylist() == [None, b"b", None, None, b"d"]


def test_a_file_that_is_gone_or_damaged_is_an_error_in_a_line(location: Location) -> None:
    version = bronze_version(location, TOPICS.package)
    file = next(Path(location.base).glob(f"{tables.BRONZE}/topic=*/**/*.parquet"))
    file.write_bytes(b"no Parquet at all")
    with pytest.raises(TaskFailed, match="may be run again"), translated("audit"):
        agents_of(location, version)
    file.unlink()
    with pytest.raises(TablesUnusable, match="files of a table are gone"), translated("audit"):
        agents_of(location, version)
