"""The fold is what the product's own import makes of the same packages (R8)."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Binary, Node
from packhorse.content.rows import node_of
from packhorse.snapshots.snapshot import new_id
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import AGENT_HEADER, decode_package
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history import fold as fold_module
from packhorse_services.pipeline.history.content import ContentHistory, content_from
from packhorse_services.pipeline.history.events import package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.fold import fold
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.storage import schemas
from tests.harness.feed import page
from tests.harness.history import History, below, content_of, folded, imported, packages_of
from tests.harness.postgres import Databases
from tests.harness.snapshots import a_snapshot, write_parts

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("several_partitions")]

BINARY = Binary("data", "ab" * 32, 12, "image/png")
LONGER = Binary("é", "cd" * 32, 7, 'text/plain; charset="utf-8"')
SEGMENTS = st.sampled_from(["a", "b", "a-b", "é", "0", "😀"])
EXAMPLES = int(os.environ.get("TEST_SPARK_EXAMPLES", "1"))
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))


def nodes(spark: SparkSession, history: History, folder: Path) -> list[Row]:
    packages = packages_of(history, folder)
    winners = fold(package_events(spark, packages))
    return ContentHistory(winners, Texts(packages, "")).unordered().collect()


def from_postgres(history: History, url: str) -> Any:
    packages = [decode_package(one.headers, one.value) for one in history.records]
    return imported(packages, url, history.bodies)


def hard_cases(history: History) -> None:
    """Append packages of every kind in orders that matter, each case below a path of its own."""
    for number, case in enumerate(CASES):
        case(history, f"/case{number}")


def a_write_wins_over_an_older_one(history: History, at: str) -> None:
    history.add(page(f"{at}/x", 1), page(f"{at}/y", 1))
    history.add(page(f"{at}/x", 2))
    history.add(Node(f"{at}/y", "other", "{}", (BINARY, LONGER)))


def a_delete_takes_the_subtree_and_not_its_neighbours(history: History, at: str) -> None:
    paths = ["", "/a", "/a/b", "/a-b", "/a0", "/é/a"]
    history.add(*below(at, [page(path) for path in paths]))
    history.delete(f"{at}/a")


def what_was_deleted_comes_back(history: History, at: str) -> None:
    history.add(*below(at, [page("/a/b/c"), page("/a")]))
    history.delete(f"{at}/a")
    history.add(page(f"{at}/a/b/d"))


def folders_live_and_die_with_clears(history: History, at: str) -> None:
    history.add(page(f"{at}/a/b/c/d"))
    history.delete(f"{at}/a/b/c/d")
    history.add(page(f"{at}/x/y/z"))
    history.delete(f"{at}/x")
    history.add(page(f"{at}/p/q"))
    history.add(page(f"{at}/p", 7))
    history.add(page(f"{at}/p/q/r"))


def a_deep_add_leaves_what_it_carries(history: History, at: str) -> None:
    history.add(*below(at, [page("/a", 1), page("/a/old", 1), page("/a/kept", 1)]))
    history.add(
        *below(at, [page("/a", 2), page("/a/kept", 2), page("/a/n/m", 2)]), deep=[f"{at}/a"]
    )
    both = [page("/a", 3), page("/b", 3), page("/b/c", 3)]
    history.add(*below(at, both), deep=[f"{at}/a", f"{at}/b", f"{at}/b/c"])


def parts_replace_their_ranges(history: History, at: str) -> None:
    top = f"{at}/a"
    old = [page("/a", 1), page("/a/c", 1), page("/a/m", 1), page("/a/m/x", 1), page("/a/z", 1)]
    history.add(*below(at, old), deep=[top])
    history.add(
        *below(at, [page("/a-b"), page("/a", 2), page("/a/b", 2)])[1:],
        deep=[top],
        part=("", f"{top}/m"),
    )
    history.add(*below(at, [page("/a/m/y", 3)]), deep=[top], part=(f"{top}/m", f"{top}/n"))
    history.add(deep=[top], part=(f"{top}/y", ""))
    history.add(page(f"{top}/m/x/deep", 4))
    history.add(deep=[top], part=(f"{top}/m/x", f"{top}/m/x/a"))


def a_part_leaves_nodes_without_their_parent(history: History, at: str) -> None:
    top = f"{at}/h"
    history.add(page(f"{top}/m/zz"))
    history.add(deep=[top], part=(f"{top}/m", f"{top}/m/z"))


def overlapping_parts(history: History, at: str) -> None:
    top = f"{at}/h"
    history.add(*below(top, [page(""), *[page(f"/{name}") for name in "abcdefgh"]]), deep=[top])
    history.add(page(f"{top}/b", 2), deep=[top], part=(f"{top}/a", f"{top}/d"))
    history.add(page(f"{top}/g", 3), deep=[top], part=(f"{top}/c", ""))
    history.add(page(f"{top}/c", 4), deep=[top], part=(f"{top}/b", f"{top}/e"))


def nothing_comes_of_the_other_actions(history: History, at: str) -> None:
    history.add(page(f"{at}/x"))
    history.append(Action.TEST, (f"{at}/x",), ())
    history.append(Action.INVALIDATE, (f"{at}/x",), (f"{at}/y",))


def the_last_of_a_path_wins_inside_a_package(history: History, at: str) -> None:
    history.add(page(f"{at}/x", 1), page(f"{at}/x", 2))


CASES: list[Callable[[History, str], None]] = [
    a_write_wins_over_an_older_one,
    a_delete_takes_the_subtree_and_not_its_neighbours,
    what_was_deleted_comes_back,
    folders_live_and_die_with_clears,
    a_deep_add_leaves_what_it_carries,
    parts_replace_their_ranges,
    a_part_leaves_nodes_without_their_parent,
    overlapping_parts,
    nothing_comes_of_the_other_actions,
    the_last_of_a_path_wins_inside_a_package,
]


def test_r8_hard_cases_are_what_an_import_makes_of_them(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    history = History(open_blobs(str(tmp_path)))
    hard_cases(history)
    expected = history.model()
    assert from_postgres(history, database_url) == expected
    assert folded(spark, packages_of(history, tmp_path)) == expected


def test_r8_the_deep_root_makes_what_came_before_irrelevant(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    history = History(open_blobs(str(tmp_path)))
    history.add(page("/a"), page("/b/c"))
    history.add(page("/b", 2), deep=["/"])
    history.add(page("/d/e", 3))
    expected = history.model()
    assert set(expected) == {"/b", "/d", "/d/e"}  # no trace of the first package
    assert from_postgres(history, database_url) == expected
    assert folded(spark, packages_of(history, tmp_path)) == expected


STEP = st.tuples(
    st.sampled_from(["add", "add", "deep", "delete", "part"]),
    st.lists(PATHS, min_size=1, max_size=3, unique=True),
)
HISTORIES = st.lists(st.lists(STEP, min_size=2, max_size=10), min_size=8, max_size=8)


def _play(history: History, at: str, kind: str, paths: list[str]) -> None:
    version = history.next_offset
    top = at + paths[0]
    if kind == "delete":
        history.delete(*[at + path for path in paths])
    elif kind == "add":
        history.add(*[page(at + path, version) for path in paths])
    elif kind == "deep":
        below_top = sorted({top, *[top + path for path in paths[1:]]})
        history.add(*[page(path, version) for path in below_top], deep=[top])
    else:
        bounds = sorted({top + path for path in paths[1:]})
        first, end = bounds[0] if bounds else top, bounds[1] if len(bounds) > 1 else ""
        inside = [f"{first}/{name}" for name in ("a", "é")]
        nodes = [page(path, version) for path in inside if not end or path < end]
        history.add(*nodes, deep=[top], part=(first, end))


# The first example is always the simplest, and in the gate it would be the only one.
@given(HISTORIES.filter(lambda several: any(len(steps) > 2 for steps in several)))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_r8_any_history_folds_to_what_an_import_makes_of_it(
    spark: SparkSession, databases: Databases, tmp_path: Path, histories: list[Any]
) -> None:
    history = History(open_blobs(str(tmp_path / "bodies")))
    for turn in range(10):  # eight histories side by side, their packages interleaved
        for number, steps in enumerate(histories):
            if turn < len(steps):
                _play(history, f"/h{number}", *steps[turn])
    expected = history.model()
    assert from_postgres(history, databases.new()) == expected
    assert folded(spark, packages_of(history, tmp_path)) == expected


@pytest.mark.parametrize(
    # With few clears, snapshots of `test_snapshot_continued.py` go on from one another, too.
    ("at", "few"),
    [(19, 0), pytest.param(7, 1_000, marks=pytest.mark.depth)],
)
def test_a_base_stands_for_the_packages_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, few: int
) -> None:
    history = History(open_blobs(str(tmp_path / "blobs")))
    hard_cases(history)
    packages = packages_of(history, tmp_path)
    with kept(package_events(spark, packages)) as every:
        winners = fold(every.where(f.col("offset") <= at))
        rows = ContentHistory(winners, Texts(packages, "")).unordered()
        given = [node_of(tuple(row)) for row in rows.select(*schemas.NODES.names).collect()]
        blobs_url, name = str(tmp_path / "blobs"), new_id()
        parts = write_parts(given, open_blobs(blobs_url), name)
        base = a_snapshot(parts, name, offset=at)
        monkeypatch.setattr(fold_module, "_FEW_CLEARS", few)
        with content_from(every, Texts(packages, blobs_url, base)) as content:
            assert content_of(content.unordered()) == history.model()


def test_a_node_says_which_package_wrote_it_and_has_binaries_as_postgres_writes_them(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    import psycopg

    history = History(open_blobs(str(tmp_path)))
    names = ("long-name", "é", "z", 'q"\\')
    binaries = tuple(Binary(name, "ab" * 32, 1, "text/plain") for name in names)
    history.add(page("/a/b"))
    history.add(Node("/x", "page", '{"a": 1}', binaries))
    from_postgres(history, database_url)
    with psycopg.connect(database_url) as connection:
        ((stored,),) = connection.execute(
            "SELECT binaries::text FROM content.node WHERE path = '/x'"
        ).fetchall()
    rows = {row.path: row for row in nodes(spark, history, tmp_path)}
    assert rows["/x"].binaries == stored
    own = history.records[0].headers["package-id"].decode()
    assert [(rows[path].offset, rows[path].package_id) for path in ("/a", "/a/b")] == [(0, own)] * 2
    assert rows["/x"].offset == 1
    assert (rows["/a"].type, rows["/a"].properties, rows["/a"].binaries) == ("folder", "{}", "{}")


LAST_WRITES = fold_module._last_writes
BROKEN: dict[str, Callable[..., Any]] = {
    "_covered": lambda paths, *_: paths.withColumn("c", f.lit(-1)),
    "_looked_up": lambda paths, _: paths.withColumn("p", f.lit(-1)),
    "_ancestors": lambda _: f.array().cast("array<string>"),
    "_last_writes": partial(lambda last, events, *rest: last(events.limit(0), *rest), LAST_WRITES),
}


@pytest.mark.proof
@pytest.mark.parametrize("function", BROKEN)
def test_a_broken_fold_is_caught(
    function: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(open_blobs(str(tmp_path)))
    hard_cases(history)
    monkeypatch.setattr(fold_module, function, BROKEN[function])
    assert folded(spark, packages_of(history, tmp_path)) != history.model()


def test_r14_packages_that_cannot_be_read_are_named(spark: SparkSession, tmp_path: Path) -> None:
    history = History(open_blobs(str(tmp_path)))
    history.add(page("/a"))
    history.raw(b"\xff", {AGENT_HEADER: b"main"})
    last = history.records[0]
    history.raw(last.value[:-1], dict(last.headers))
    history.append(Action.ADD, ("/b",), (), [page("/elsewhere")])
    with pytest.raises(TaskRefused) as refused:
        nodes(spark, history, tmp_path)
    assert all(f"offset {offset}: " in str(refused.value) for offset in (1, 2, 3))
    assert "offset 0" not in str(refused.value)
    assert "--leave-out" in str(refused.value)
