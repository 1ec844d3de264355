"""Packages between two real repositories: exported from one snapshot, applied in order (R6, R8)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import Binary, InvalidNode, InvalidPath, Node
from packhorse.db.connect import connect
from packhorse.db.metadata import EXPORTER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.messaging.open import open_journal
from packhorse.packages.apply import INVALIDATE_CHANNEL, apply
from packhorse.packages.body import pack
from packhorse.packages.build import PathMissing, PathRefused, export
from packhorse.packages.limits import PackageRefused
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from tests.harness.depth import examples
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.fold import fold
from tests.harness.postgres import Databases
from tests.harness.subscriber import content_in


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return open_blobs(str(tmp_path))


@pytest.fixture
def author(database_url: str) -> Iterator[psycopg.Connection]:
    with connect(database_url, "tests") as connection:
        tree.upsert(
            connection,
            [page("/site", 1), page("/site/a", 2), page("/site/a/b", 3), page("/sitemap", 4)],
        )
        connection.commit()
        act_as(connection, EXPORTER)
        yield connection


def exported(
    author: psycopg.Connection,
    paths: Sequence[str] = (),
    deep: Sequence[str] = (),
    roots: Sequence[str] = ("/",),
) -> list[str]:
    return [node.path for node in export(author, Action.ADD, paths, deep, roots)]


def package(
    nodes: list[Node] | None,
    blobs: BlobStore,
    action: Action = Action.ADD,
    paths: Sequence[str] = (),
    deep: Sequence[str] = (),
) -> PackageMessage:
    packed = None if nodes is None else pack(nodes, f"id-{len(nodes)}-00", blobs)
    entry = PackageEntry(
        "id-0-00" if nodes is None else f"id-{len(nodes)}-00",
        "main",
        action,
        tuple(paths),
        tuple(deep),
        body_length=packed.length if packed else 0,
    )
    return PackageMessage(entry, packed.body if packed else None)


def test_a_shallow_path_is_the_node_itself(author: psycopg.Connection) -> None:
    assert exported(author, ["/site"]) == ["/site"]


def test_a_deep_path_is_its_subtree_on_segment_boundaries(author: psycopg.Connection) -> None:
    assert exported(author, deep=["/site"]) == ["/site", "/site/a", "/site/a/b"]


def test_overlapping_paths_come_once(author: psycopg.Connection) -> None:
    paths = exported(author, ["/sitemap", "/site/a", "/sitemap"], ["/site/a", "/site/a/b"])
    assert paths == ["/sitemap", "/site/a", "/site/a/b"]


@pytest.mark.parametrize(("paths", "deep"), [(["/site", "/no"], []), ([], ["/site", "/no"])])
def test_a_path_that_is_not_there_is_named(
    author: psycopg.Connection, paths: list[str], deep: list[str]
) -> None:
    with pytest.raises(PathMissing, match="'/no' does not exist") as caught:
        exported(author, paths, deep)
    assert caught.value.path == "/no"


def test_roots_are_checked_before_anything_is_read(author: psycopg.Connection) -> None:
    with pytest.raises(PathRefused, match="/sitemap"):
        export(author, Action.ADD, ["/site/a"], ["/sitemap"], ["/site"])
    with pytest.raises(PathRefused):
        export(author, Action.DELETE, ["/sitemap"], [], ["/site"])
    with pytest.raises(InvalidPath):
        export(author, Action.ADD, ["/site/../sitemap"], [])


@pytest.mark.parametrize("action", [Action.DELETE, Action.INVALIDATE, Action.TEST])
def test_only_add_carries_nodes(author: psycopg.Connection, action: Action) -> None:
    assert list(export(author, action, ["/gone"], ["/gone/too"])) == []


def test_r6_an_export_reads_one_snapshot(author: psycopg.Connection, database_url: str) -> None:
    author.rollback()
    author.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    act_as(author, EXPORTER)
    assert exported(author, ["/sitemap"]) == ["/sitemap"]
    with connect(database_url, "tests") as other:
        tree.delete(other, ["/site/a"])
    assert exported(author, deep=["/site"]) == ["/site", "/site/a", "/site/a/b"]


@pytest.fixture
def importer(databases: Databases) -> Iterator[psycopg.Connection]:
    with connect(databases.new(), "tests") as connection:
        act_as(connection, IMPORTER)
        yield connection


def test_a_deep_package_brings_the_subtree_and_nothing_else(
    author: psycopg.Connection, importer: psycopg.Connection, blobs: BlobStore
) -> None:
    tree.upsert(importer, [page("/site/old/x"), page("/site/a"), page("/sitemap", 9)])
    nodes = list(export(author, Action.ADD, [], ["/site"]))
    apply(importer, [package(nodes, blobs, deep=["/site"])], blobs)
    for path in ("/site", "/site/a"):
        assert tree.content_hash(importer, path) == tree.content_hash(author, path)
    assert content_in(importer)["/sitemap"][1] == {"version": 9}


@pytest.mark.parametrize("padding", [10, 3000])
def test_large_and_small_deep_packages_do_the_same(
    importer: psycopg.Connection, blobs: BlobStore, padding: int
) -> None:
    tree.upsert(importer, [page("/d/old"), page("/d/n1/old"), page("/dd")])
    nodes = [page("/s"), page("/d"), *(page(f"/d/n{n}", text="x" * padding) for n in range(500))]
    apply(importer, [package(nodes, blobs, paths=["/s"], deep=["/d"])], blobs)
    assert set(content_in(importer)) == {"/dd", *(node.path for node in nodes)}


@pytest.mark.parametrize("padding", [10, 3000])
def test_the_deep_root_is_all_there_is(
    author: psycopg.Connection, importer: psycopg.Connection, blobs: BlobStore, padding: int
) -> None:
    author.rollback()
    early = [page(path, text="x" * padding) for path in ("/ x", "/!", "/site!/c", "/site/a-b")]
    tree.upsert(author, [*early, *(page(f"/site/n{n}", text="x" * padding) for n in range(400))])
    tree.upsert(importer, [page("/gone/x"), page("/site", 9)])
    nodes = list(export(author, Action.ADD, ["/site/a"], ["/", "/site"]))
    assert [node.path for node in nodes] == sorted({node.path for node in nodes})
    apply(importer, [package(nodes, blobs, paths=["/site/a"], deep=["/", "/site"])], blobs)
    assert tree.content_hash(importer) == tree.content_hash(author)
    tree.delete(author, ["/"])
    with pytest.raises(PathMissing, match="'/' does not exist"):
        exported(author, deep=["/"])


def test_r30_memory_is_bounded_by_binaries_too(
    importer: psycopg.Connection, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def upsert(_: psycopg.Connection, nodes: Sequence[Node]) -> None:
        sizes.append(sum(node.size for node in nodes))

    monkeypatch.setattr(tree, "upsert", upsert)
    binaries = tuple(Binary(f"{n}-{'n' * 900}", "ab" * 32, 1, "image/png") for n in range(900))
    nodes = [Node(f"/d/{n}", "page", "{}", binaries) for n in range(20)]
    apply(importer, [package(nodes, blobs, paths=[node.path for node in nodes])], blobs)
    tree.replace(importer, "/d", nodes)
    assert sum(sizes) > 30_000_000
    assert max(sizes) < 6_000_000


def test_r30_a_number_that_would_grow_is_refused(
    importer: psycopg.Connection, blobs: BlobStore
) -> None:
    node = Node("/a", "page", '{"n": 1e131071}')
    with pytest.raises(InvalidNode, match="exponent"):
        apply(importer, [package([node], blobs, paths=["/a"])], blobs)


@pytest.mark.parametrize(
    ("nodes", "paths", "deep", "reason"),
    [
        (["/a", "/b"], ["/a"], [], "not in its paths"),
        (["/a-b"], [], ["/a"], "not in its paths"),
        (["/a"], [], ["/a", "/b"], "no nodes of one"),
        (["/a/x"], [], ["/a"], "begin with its own"),
        (["/a", "/b", "/a/x"], [], ["/a", "/b"], "not together"),
        (["/a", "/a/x"], ["/a/x"], [], "not in its paths"),
        (["/a", "/a/x"], [], ["/a/x"], "not in its paths"),
        (["/secret"], ["/secret"], [], "outside the import roots"),
    ],
)
def test_nodes_lie_where_the_package_says(
    importer: psycopg.Connection,
    blobs: BlobStore,
    nodes: list[str],
    paths: list[str],
    deep: list[str],
    reason: str,
) -> None:
    made = package([page(path) for path in nodes], blobs, paths=paths, deep=deep)
    with pytest.raises(PackageRefused, match=reason):
        apply(importer, [made], blobs, roots=["/a", "/b", "/a-b", "/x/y"])


def test_a_body_belongs_to_add_alone(importer: psycopg.Connection, blobs: BlobStore) -> None:
    made = package([page("/a")], blobs, paths=["/a"])
    for wrong in (
        replace(made, body=None),
        replace(made, entry=replace(made.entry, action=Action.DELETE)),
    ):
        with pytest.raises(PackageRefused, match="body"):
            apply(importer, [wrong], blobs)


def test_invalidate_notifies_at_the_commit_in_bounded_messages(
    database_url: str, blobs: BlobStore
) -> None:
    paths = [f"/{'ü' * 900}/{number}" for number in range(20)]
    with connect(database_url, "tests", autocommit=True) as listener:
        listener.execute(f"LISTEN {INVALIDATE_CHANNEL}")
        with connect(database_url, "tests") as connection:
            act_as(connection, IMPORTER)
            apply(connection, [package(None, blobs, Action.INVALIDATE, paths)], blobs)
            assert list(listener.notifies(timeout=0.05)) == []
        reported = [json.loads(n.payload) for n in listener.notifies(timeout=120, stop_after=7)]
    assert {one["package_id"] for one in reported} == {"id-0-00"}
    assert sorted(path for one in reported for path in one["paths"]) == sorted(paths)


def test_r23_the_importer_writes_content_and_nothing_else(importer: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        importer.execute("SELECT FROM bookkeeping.position")


PATHS = ["/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/x"]
path = st.sampled_from(PATHS)
step = st.one_of(
    st.tuples(st.just("add"), st.lists(path, min_size=1, max_size=3)),
    st.tuples(st.just("deep"), st.lists(path, min_size=1, max_size=2)),
    st.tuples(st.just("delete"), st.lists(path, min_size=1, max_size=2)),
)


@given(groups=st.lists(st.lists(step, min_size=1, max_size=8), min_size=1, max_size=4))
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_r8_packages_in_any_grouping_are_the_fold(
    database_url: str, blobs: BlobStore, groups: list[list[tuple[str, list[str]]]]
) -> None:
    feed = Feed(open_journal(f"memory://{id(groups)}", client_name="tests"), blobs)
    with connect(database_url, "tests") as connection:
        tree.delete(connection, PATHS)
        records = []
        for number, group in enumerate(groups):
            messages = [_message(feed, kind, paths, number) for kind, paths in group]
            apply(connection, messages, blobs)
            offsets = [feed.append(message) for message in messages]
            records += [feed.journal.read_at(TOPICS.package, offset) for offset in offsets]
            assert content_in(connection) == fold([r for r in records if r], blobs)
        connection.rollback()


def _message(feed: Feed, kind: str, paths: list[str], number: int) -> PackageMessage:
    if kind == "delete":
        return feed.message(Action.DELETE, paths, [], None)
    if kind == "add":
        return feed.message(Action.ADD, paths, [], [page(path, number) for path in set(paths)])
    roots = [
        p for p in sorted(set(paths)) if not any(p != q and p.startswith(q + "/") for q in paths)
    ]
    nodes = [node for root in roots for node in (page(root, number), page(f"{root}/new", number))]
    return feed.message(Action.ADD, [], paths, nodes)
