"""A subtree as it was: shown from the archive, and put back into the author's repository."""

import json
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.api import binary_key
from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse_services.pipeline.at.command import show
from packhorse_services.pipeline.at.task import OTHERWISE, Point, restore, subtree_at
from packhorse_services.pipeline.engine.exit_codes import exit_code
from packhorse_services.pipeline.errors import NotThere, TaskRefused
from packhorse_services.pipeline.history.content import (
    in_path_order,
    partitions_for,
    placed,
    require_binaries,
)
from packhorse_services.pipeline.history.decoding import events_of
from packhorse_services.pipeline.history.target import target
from packhorse_services.pipeline.snapshot.task import SnapshotRequest, make_snapshot
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import TOPICS, page
from tests.harness.fold import Content
from tests.harness.history import BEGIN_MS, History, archive, content_of, gap
from tests.harness.subscriber import content_in

pytestmark = pytest.mark.spark

PICTURE = Binary("data", sha256(b"png").hexdigest(), 3, "image/png")


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "tables"))


@pytest.fixture
def history(location: Location) -> History:
    """A subtree that changes, and a gap behind its first four packages."""
    history = History(open_blobs(location.blobs_url(tables.BODIES)))
    history.add(page("/s/a", 1), page("/s/b", 1), page("/other", 1))
    history.add(Node("/s/a/x", "page", "{}", (PICTURE,)))
    history.delete("/s/b")
    history.add(page("/s", 4), deep=["/s"])
    history.next_offset = 8
    history.add(page("/s/late", 9))
    archive(location, history.records)
    gap(location, 4, 8)
    return history


def within(content: Content, path: str) -> Content:
    return {key: node for key, node in content.items() if f"{key}/".startswith(f"{path}/")}


def shown(
    spark: SparkSession, location: Location, path: str = "/s", **when: Any
) -> tuple[Content, int]:
    blobs = location.blobs_url("blobs")
    with subtree_at(spark, location, TOPICS.package, blobs, Point(path, **when)) as found:
        content = content_of(found.nodes)
        assert list(content) == sorted(content)
        return content, found.target.offset


def test_a_subtree_is_shown_as_it_was(
    spark: SparkSession, location: Location, history: History
) -> None:
    assert shown(spark, location, "/s/a", offset=3) == ({}, 3)
    assert shown(spark, location, offset=1) == (within(history.model(up_to=1), "/s"), 1)
    second = datetime.fromtimestamp(BEGIN_MS / 1000 + 2.5, UTC)
    assert shown(spark, location, time=second) == (within(history.model(up_to=2), "/s"), 2)


def test_what_the_archive_lacks_is_refused(
    spark: SparkSession, location: Location, history: History
) -> None:
    with pytest.raises(TaskRefused, match="lacks offsets 4 to 7"):
        shown(spark, location, offset=6)
    with pytest.raises(TaskRefused, match="lacks offsets 4 to 7"):
        shown(spark, location, time=datetime.fromtimestamp(BEGIN_MS / 1000 + 6, UTC))
    with pytest.raises(TaskRefused, match="lacks offsets 4 to 7"):
        shown(spark, location, offset=8)
    with pytest.raises(TaskRefused, match="offset 9 is not archived"):
        shown(spark, location, offset=9)
    with pytest.raises(TaskRefused, match="begins at 2023-11-14"):
        shown(spark, location, time=datetime(2020, 1, 1, tzinfo=UTC))
    newest = datetime.fromtimestamp(BEGIN_MS / 1000 + 8, UTC)
    assert target(location, TOPICS.package, time=newest).offset == 8, (
        "the newest one's own time is known"
    )
    with pytest.raises(TaskRefused, match=r"newest .* 2023-11-14T22:13:28.000Z.*--offset 8"):
        shown(spark, location, time=datetime.fromtimestamp(BEGIN_MS / 1000 + 8.5, UTC))


def test_it_is_put_back_whole_and_only_with_its_binaries(
    spark: SparkSession, location: Location, history: History, database_url: str
) -> None:
    with psycopg.connect(database_url) as author:
        tree.upsert(author, [page("/s/new", 1), page("/t", 1)])
    blobs_url = location.blobs_url("blobs")
    point = Point("/s", offset=1)
    with subtree_at(spark, location, TOPICS.package, blobs_url, point) as found:
        content = found.nodes
        with pytest.raises(TaskRefused, match=f"sha256:{PICTURE.sha256} of /s/a/x.*--force"):
            require_binaries(content, blobs_url, otherwise=OTHERWISE)
        with closing(open_blobs(blobs_url)) as blobs:
            blobs.put(binary_key(PICTURE.sha256), [b"png"])
        require_binaries(content, blobs_url, otherwise=OTHERWISE)
        assert restore(content, "/s", database_url) == 4
    with psycopg.connect(database_url) as author:
        restored = content_in(author)
    assert within(restored, "/s") == within(history.model(up_to=1), "/s")
    assert set(restored) == {"/s", "/s/a", "/s/a/x", "/s/b", "/t"}


def test_a_node_names_its_package_or_the_snapshot_that_it_came_with(
    spark: SparkSession,
    location: Location,
    history: History,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blobs_url = location.blobs_url("blobs")
    base = make_snapshot(
        spark, location, TOPICS.package, blobs_url, SnapshotRequest(offset=0)
    ).snapshot
    with subtree_at(spark, location, TOPICS.package, blobs_url, Point("/s/a", offset=1)) as found:
        show(found, "/s/a", as_json=False)
        assert capsys.readouterr().out.splitlines() == [
            f"/s/a  page  snapshot {base.id}",
            "/s/a/x  page  offset 1",
        ]
        show(found, "/s/a", as_json=True)
    old, new = map(json.loads, capsys.readouterr().out.splitlines())
    own = history.records[1].headers["package-id"].decode()
    assert (old["offset"], old["package_id"], old["snapshot"]) == (0, None, base.id)
    assert (new["offset"], new["package_id"], new["snapshot"]) == (1, own, None)


def test_where_nothing_was_it_says_so_and_puts_nothing_back(
    spark: SparkSession,
    location: Location,
    history: History,
    database_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with psycopg.connect(database_url) as author:
        tree.upsert(author, [page("/t", 1)])
    blobs_url = location.blobs_url("blobs")
    with subtree_at(spark, location, TOPICS.package, blobs_url, Point("/t", offset=2)) as found:
        for as_json in (False, True):
            with pytest.raises(NotThere) as ended:
                show(found, "/t", as_json=as_json)
            said = "nothing was at /t or below it after the package at offset 2"
            assert (str(ended.value), exit_code(ended.value)) == (said, 3)
            assert capsys.readouterr().out == ""
        with pytest.raises(NotThere, match="nothing was at '/t'"):
            restore(found.nodes, "/t", database_url)
    with psycopg.connect(database_url) as author:
        assert set(content_in(author)) == {"/t"}


def test_a_partition_is_of_bounded_size(spark: SparkSession) -> None:
    """The driver takes one partition after the other, and no more than one at a time."""
    rows = [(f"/s/{number:03}", "page", "{}" + " " * 94, "{}") for number in range(100)]
    content = spark.createDataFrame(
        rows[::-1], "path string, type string, properties string, binaries string"
    )
    partitions = partitions_for(100 * 104, 1000)
    ordered = in_path_order(placed(content, partitions), partitions).drop("partition")
    sizes = [len(found) for found in ordered.rdd.glom().collect()]
    assert partitions == 1 + 100 * 104 // 1000
    assert len(sizes) == partitions
    assert max(sizes) < 20
    assert [tuple(row) for row in ordered.toLocalIterator()] == rows
    assert partitions_for(100 * 104) == 1


def test_packages_about_other_paths_are_not_unpacked(history: History) -> None:
    """A body that can't be read matters only to those who ask for its paths."""
    record = history.records[2]
    reported = [
        [event.kind for event in events_of(2, record.headers, b"\xff", history.bodies, path)]
        for path in ("/s", "/s/b/c", "/other", "/s/bb")
    ]
    assert reported == [["unreadable"], ["unreadable"], [], []]
