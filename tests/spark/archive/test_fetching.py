"""What won is fetched from the packages again, as it was when it won."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from packhorse.blobs.open import open_blobs
from packhorse.content.rows import node_of
from packhorse.snapshots.snapshot import new_id
from packhorse_services.pipeline.history import onto_base
from packhorse_services.pipeline.history.content import ContentHistory, content_from
from packhorse_services.pipeline.history.events import package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.fold import fold, hash_of
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.storage import schemas
from tests.harness.feed import page
from tests.harness.history import History, content_of, packages_of
from tests.harness.snapshots import a_snapshot, write_parts

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("several_partitions")]


def test_the_hash_is_that_of_the_node(spark: SparkSession, tmp_path: Path) -> None:
    history = History(open_blobs(str(tmp_path)))
    history.add(page("/a/b"), page("/é", 2))
    history.add(page("/a/b/c", 3), page("/a/b", 4))
    packages = packages_of(history, tmp_path)
    with kept(fold(package_events(spark, packages))) as winners:
        hashes = {row.path: (row.hash, row.size) for row in winners.collect()}
        rows = ContentHistory(winners, Texts(packages, "")).unordered().collect()
    for row in rows:
        size = len(row.path) + len(row.properties) + len(row.binaries)
        whole = hash_of(row.path, row.type, row.properties, row.binaries)
        assert hashes.pop(row.path) == (whole, size)
    assert not hashes


def test_a_package_that_is_gone_meanwhile_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    history = History(open_blobs(str(tmp_path)))
    history.add(page("/a"))
    packages = packages_of(history, tmp_path)
    texts = Texts(replace(packages, files=()), "")
    with pytest.raises(PythonException, match="the archive has changed meanwhile"):
        ContentHistory(fold(package_events(spark, packages)), texts).unordered().collect()


def test_a_package_or_a_part_with_many_nodes_is_read_in_its_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onto_base, "_FEW_WRITES", 3)  # more are not told to each task
    history = History(open_blobs(str(tmp_path / "blobs")))
    paths = [f"/{name}/{number}" for name in "ab" for number in range(9)]
    history.add(*map(page, paths))
    history.add(*(page(path, 2) for path in paths[::2]))
    history.add(page("/c/d/e/f"), page("/a/3", 3), page("/a/3", 4))
    history.add(*(page(path, 5) for path in paths[12:]), page("/b/8", 6))
    packages = packages_of(history, tmp_path)
    blobs_url, name = str(tmp_path / "blobs"), new_id()
    with kept(package_events(spark, packages)) as events:
        whole = Texts(packages, "", at_a_time=3)
        assert content_of(ContentHistory(fold(events), whole).unordered()) == history.model()
        first = ContentHistory(fold(events.where("offset <= 2")), Texts(packages, "")).unordered()
        rows = first.select(*schemas.NODES.names).collect()
        parts = write_parts([node_of(tuple(row)) for row in rows], open_blobs(blobs_url), name)
        base = a_snapshot(parts, name, offset=2)
        texts = Texts(packages, blobs_url, base, at_a_time=3)
        with content_from(events, texts) as content:
            assert content_of(content.unordered()) == history.model()
