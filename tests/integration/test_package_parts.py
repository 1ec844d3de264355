"""A subtree in parts is the same as the subtree at once (R8); what is no part is refused (R14)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Node, ancestors_of, is_within
from packhorse.content.parts import SubtreePart
from packhorse.db.connect import connect
from packhorse.messaging.open import open_journal
from packhorse.packages import apply as applying
from packhorse.packages.apply import apply
from packhorse.packages.limits import PackageRefused
from packhorse.wire.messages import Action, PackageMessage
from tests.harness.depth import examples
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.fold import fold
from tests.harness.parts import cut, part_of_subtree
from tests.harness.subscriber import content_in

DEEP = "/content/huge"
SEGMENTS = ["a", "b", "a-b", "a0", "!", "é", "\ufffd", "\U0001f40e"]
BESIDE = ["/content", "/content/huge-2", "/content/huge-2/a", "/content/huge0", "/content/z", "/x"]

below = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3).map(
    lambda names: f"{DEEP}/" + "/".join(names)
)
trees = st.sets(below, max_size=12).map(
    lambda paths: {DEEP, *paths, *(above for path in paths for above in ancestors_of(path)[1:])}
)
on_postgres = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return open_blobs(str(tmp_path))


@pytest.fixture
def repository(database_url: str) -> Iterator[psycopg.Connection]:
    with connect(database_url, "tests") as connection:
        yield connection
        connection.rollback()


@pytest.fixture(params=["grouped", "streamed"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every body be small, or every one large."""
    if request.param == "streamed":
        monkeypatch.setattr(applying, "_SMALL_BYTES", -1)


@pytest.mark.usefixtures("either_way")
@given(wanted=trees, stale=trees, bounds=st.sets(below, max_size=4), together=st.booleans())
@on_postgres
def test_r8_parts_in_order_are_the_subtree_at_once(
    repository: psycopg.Connection,
    blobs: BlobStore,
    wanted: set[str],
    stale: set[str],
    bounds: set[str],
    together: bool,
) -> None:
    nodes = [page(path, 2) for path in sorted(wanted)]
    hashes = []
    for packages in (cut(DEEP, nodes, (), blobs), cut(DEEP, nodes, bounds, blobs)):
        fill(repository, {*stale, *BESIDE})
        for group in [list(packages)] if together else [[one] for one in packages]:
            apply(repository, group, blobs)
        hashes.append(tree.content_hash(repository))
        assert set(content_in(repository)) == {*wanted, *BESIDE}
    assert hashes[0] == hashes[1]


def fill(repository: psycopg.Connection, paths: set[str]) -> None:
    tree.delete(repository, ["/"])
    tree.upsert(repository, [page(path, 1) for path in sorted(paths)])


@pytest.mark.proof
def test_r8_the_checker_catches_a_part_that_leaves_what_is_stale(
    repository: psycopg.Connection, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "delete_parts", lambda *_: 0)
    fill(repository, {DEEP, f"{DEEP}/old"})
    apply(repository, cut(DEEP, [page(DEEP)], [f"{DEEP}/m"], blobs), blobs)
    assert f"{DEEP}/old" in content_in(repository)


@pytest.mark.proof
def test_r8_the_checker_catches_a_range_that_reaches_beside_the_subtree(
    repository: psycopg.Connection, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def between(top: str, first: str, end: str) -> SubtreePart:
        return SubtreePart(top, True, first or top, end)

    monkeypatch.setattr(SubtreePart, "between", between)
    fill(repository, {DEEP, "/content/huge-2"})
    apply(repository, [part_of_subtree(DEEP, "", f"{DEEP}/m", [page(DEEP)], blobs)], blobs)
    assert "/content/huge-2" not in content_in(repository)


PATHS = ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b-c", "/a/d", "/ab", "/x"]
step = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(PATHS), st.just(""), st.just("")),
    st.tuples(st.just("delete"), st.sampled_from(PATHS), st.just(""), st.just("")),
    st.tuples(
        st.just("part"),
        st.sampled_from(["/a", "/a/b"]),
        st.sampled_from(["", *PATHS[:6]]),
        st.sampled_from(["", *PATHS[:6]]),
    ),
)


@pytest.mark.usefixtures("either_way")
@given(groups=st.lists(st.lists(step, min_size=1, max_size=8), min_size=1, max_size=3))
@on_postgres
def test_r8_parts_among_other_packages_in_any_grouping_are_the_fold(
    repository: psycopg.Connection, blobs: BlobStore, groups: list[list[tuple[str, ...]]]
) -> None:
    feed = Feed(open_journal(f"memory://{id(groups)}", client_name="tests"), blobs)
    tree.delete(repository, ["/"])
    records: list[Any] = []
    for version, group in enumerate(groups):
        made = [message(feed, version, *one) for one in group]
        messages = [one for one in made if one is not None]
        apply(repository, messages, blobs)
        offsets = [feed.append(one) for one in messages]
        records += [feed.journal.read_at(TOPICS.package, offset) for offset in offsets]
        assert content_in(repository) == fold(records, blobs)


def message(
    feed: Feed, version: int, kind: str, path: str, first: str, end: str
) -> PackageMessage | None:
    """Return a package; a part carries its bounds alone, without the folders above them."""
    if kind == "delete":
        return feed.message(Action.DELETE, [path], [], None)
    if kind == "add":
        return feed.message(Action.ADD, [path], [], [page(path, version)])
    bounds = [bound for bound in (first, end) if bound]
    if not bounds or any(not is_within(bound, path) for bound in bounds):
        return None
    if end and (first or path) >= end:
        return None
    nodes = [page(first, version)] if first and version % 2 else []
    return part_of_subtree(path, first, end, nodes, feed.blobs)


@pytest.mark.usefixtures("either_way")
def test_r8_a_subtree_that_is_emptied_leaves_the_folders_made_above_it(
    repository: psycopg.Connection, blobs: BlobStore
) -> None:
    feed = Feed(open_journal("memory://emptied", client_name="tests"), blobs)
    write = message(feed, 0, "add", "/a/b/c", "", "")
    emptied = message(feed, 0, "part", "/a/b", "/a/b", "")
    assert write
    assert emptied
    apply(repository, [write, emptied], blobs)
    assert set(content_in(repository)) == {"/a"}


@pytest.mark.usefixtures("either_way")
def test_a_part_without_nodes_empties_its_range(
    repository: psycopg.Connection, blobs: BlobStore
) -> None:
    fill(repository, {DEEP, f"{DEEP}/a", f"{DEEP}/m", f"{DEEP}/m/x", f"{DEEP}/z", *BESIDE})
    apply(repository, [part_of_subtree(DEEP, f"{DEEP}/b", f"{DEEP}/n", [], blobs)], blobs)
    assert set(content_in(repository)) == {DEEP, f"{DEEP}/a", f"{DEEP}/z", *BESIDE}


@pytest.mark.usefixtures("either_way")
def test_the_deep_paths_own_node_stays_unless_it_is_in_the_range(
    repository: psycopg.Connection, blobs: BlobStore
) -> None:
    fill(repository, {DEEP, f"{DEEP}/a", f"{DEEP}/m"})
    second = part_of_subtree(DEEP, f"{DEEP}/b", "", [page(f"{DEEP}/n", 2)], blobs)
    apply(repository, [second], blobs)
    assert {path: found[1]["version"] for path, found in content_in(repository).items() if found[1]}
    assert content_in(repository)[DEEP][1] == {"version": 1}
    apply(repository, [part_of_subtree(DEEP, "", f"{DEEP}/b", [page(DEEP, 2)], blobs)], blobs)
    assert content_in(repository)[DEEP][1] == {"version": 2}
    assert set(content_in(repository)) >= {DEEP, f"{DEEP}/n"}
    assert f"{DEEP}/a" not in content_in(repository)


@pytest.mark.usefixtures("either_way")
def test_the_root_may_come_in_parts(repository: psycopg.Connection, blobs: BlobStore) -> None:
    fill(repository, {"/!", "/a", "/m/x", "/z"})
    nodes = [page("/b", 2), page("/n", 2)]
    apply(repository, cut("/", nodes, ["/c", "/m/x"], blobs), blobs)
    assert set(content_in(repository)) == {"/b", "/n"}


def a_part(blobs: BlobStore, nodes: tuple[Node, ...] = (), **entry: Any) -> PackageMessage:
    made = part_of_subtree(DEEP, f"{DEEP}/b", f"{DEEP}/n", nodes, blobs)
    return replace(made, entry=replace(made.entry, **entry))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"paths": (f"{DEEP}/c",)}, "exactly one deep path"),
        ({"deep_paths": (DEEP, f"{DEEP}/c")}, "exactly one deep path"),
        ({"deep_paths": ()}, "exactly one deep path"),
        ({"range_from": f"{DEEP}/n"}, "range is none"),
        ({"range_from": f"{DEEP}/o"}, "range is none"),
        ({"range_from": "", "range_to": DEEP}, "range is none"),
        ({"range_from": "/content/huge-2"}, "outside"),
        ({"range_to": "/content/huge0"}, "outside"),
        ({"range_to": f"{DEEP}/../z"}, "range is none"),
        ({"range_from": "", "range_to": ""}, "exactly when its type"),
        ({"deep_paths": ("/x",)}, "outside the import roots"),
    ],
)
def test_r14_what_is_no_part_is_refused(
    repository: psycopg.Connection, blobs: BlobStore, entry: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PackageRefused, match=reason):
        apply(repository, [a_part(blobs, **entry)], blobs, roots=[DEEP])


def test_r14_a_range_comes_with_its_type_and_with_add_alone(
    repository: psycopg.Connection, blobs: BlobStore
) -> None:
    with pytest.raises(PackageRefused, match="exactly when its type"):
        apply(repository, [replace(a_part(blobs), package_type="packhorse/1")], blobs)
    for action in (Action.DELETE, Action.INVALIDATE):
        with pytest.raises(PackageRefused, match="a range belongs to an ADD"):
            apply(repository, [replace(a_part(blobs, action=action), body=None)], blobs)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("path", [DEEP, f"{DEEP}/a", f"{DEEP}/n", "/content/huge-2", "/x"])
def test_a_node_outside_the_range_is_refused(
    repository: psycopg.Connection, blobs: BlobStore, path: str
) -> None:
    with pytest.raises(PackageRefused, match="not in its range"):
        apply(repository, [a_part(blobs, (page(f"{DEEP}/c"), page(path)))], blobs)


def test_r30_a_large_part_is_written_batch_by_batch(
    repository: psycopg.Connection, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    upsert = tree.upsert

    def measured(connection: psycopg.Connection, nodes: Any) -> None:
        sizes.append(sum(node.size for node in nodes))
        upsert(connection, nodes)

    monkeypatch.setattr(tree, "upsert", measured)
    nodes = tuple(page(f"{DEEP}/c/{number:05}", text="x" * 30_000) for number in range(500))
    apply(repository, [a_part(blobs, nodes)], blobs)
    assert sum(sizes) > 14_000_000
    assert max(sizes) < 5_000_000
    assert len(content_in(repository)) == 503
