"""The tree in Postgres against a dict: upsert, delete, replace, stream, hash."""

import asyncio
import contextlib
import gc
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from packhorse.content import tree
from packhorse.content.node import Binary, InvalidPath, Node, ancestors_of, is_within, parent_of
from packhorse.content.queries import list_children
from packhorse.db.connect import connect
from packhorse.db.metadata import EXPORTER, IMPORTER
from tests.harness.depth import examples

# Names that sort before and after "/" and "0", that LIKE would read as patterns, and a long one.
NAMES = [
    "a",
    "b",
    "a_b",
    "axb",
    "a%",
    "a-b",
    "a b",
    "a.b",
    "a0",
    "a!",
    "é",
    "\U0001f40e",
    "L" * 200,
]
names = st.sampled_from(NAMES)
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
binaries = st.sampled_from([(), (Binary("data", "0" * 64, 1, "text/plain"),)])
nodes = st.builds(
    Node,
    paths,
    st.sampled_from(["page", "asset"]),
    st.sampled_from(["{}", '{"n": 1.50}']),
    binaries,
)


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection]:
    with contextlib.closing(connect(database_url, "tests")) as connection:
        yield connection


class Model:
    """What the tree should be: a dict from path to node."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def upsert(self, given: Iterable[Node]) -> None:
        for node in given:
            self.nodes[node.path] = node
        for path in list(self.nodes):
            for above in ancestors_of(path):
                self.nodes.setdefault(above, Node(above, tree.FOLDER))

    def delete(self, gone: Iterable[str]) -> int:
        kept = {
            path: node
            for path, node in self.nodes.items()
            if not any(is_within(path, root) for root in gone)
        }
        removed = len(self.nodes) - len(kept)
        self.nodes = kept
        return removed

    def below(self, path: str) -> list[Node]:
        return [self.nodes[each] for each in sorted(self.nodes) if is_within(each, path)]


class TreeMachine(RuleBasedStateMachine):
    """Runs every change on the database and on the model, in one open transaction."""

    conn: psycopg.Connection

    def __init__(self) -> None:
        super().__init__()
        self.conn.rollback()
        self.model = Model()

    @rule(given=st.lists(nodes, max_size=6))
    def upsert(self, given: list[Node]) -> None:
        tree.upsert(self.conn, given)
        self.model.upsert(given)

    @rule(gone=st.lists(paths, max_size=3))
    def delete(self, gone: list[str]) -> None:
        assert tree.delete(self.conn, gone) == self.model.delete(gone)

    @rule(path=paths, below=st.lists(st.tuples(st.lists(names, max_size=3), nodes), max_size=5))
    def replace(self, path: str, below: list[tuple[list[str], Node]]) -> None:
        given = [
            Node("/".join([path, *parts]), node.type, node.properties, node.binaries)
            for parts, node in below
        ]
        tree.replace(self.conn, path, iter(given))
        self.model.delete([path])
        self.model.upsert(given)

    @rule(wanted=st.lists(paths, max_size=4))
    def read(self, wanted: list[str]) -> None:
        expected = [self.model.nodes[path] for path in sorted(set(wanted) & set(self.model.nodes))]
        assert tree.read(self.conn, wanted) == expected

    @rule(path=paths)
    def stream(self, path: str) -> None:
        assert list(tree.stream(self.conn, path)) == self.model.below(path)

    @invariant()
    def same_content(self) -> None:
        assert list(tree.stream(self.conn, "/")) == self.model.below("/")


def test_r29_the_tree_behaves_as_a_dict_of_paths(conn: psycopg.Connection) -> None:
    TreeMachine.conn = conn
    run_state_machine_as_test(
        TreeMachine,
        settings=settings(max_examples=examples(60), stateful_step_count=20, deadline=None),
    )


@given(first=st.lists(nodes, max_size=5), second=st.lists(nodes, max_size=5))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hashes_are_equal_exactly_when_content_is(
    conn: psycopg.Connection, first: list[Node], second: list[Node]
) -> None:
    seen = []
    for given_nodes in (first, second):
        conn.rollback()
        tree.upsert(conn, given_nodes)
        seen.append((tree.content_hash(conn), list(tree.stream(conn, "/"))))
    assert (seen[0][0] == seen[1][0]) == (seen[0][1] == seen[1][1])


@given(given_nodes=st.lists(nodes, max_size=12), parent=paths, limit=st.integers(1, 4))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_r29_children_page_by_page_are_those_of_the_model(
    conn: psycopg.Connection, database_url: str, given_nodes: list[Node], parent: str, limit: int
) -> None:
    model = Model()
    model.upsert(given_nodes)
    tree.delete(conn, ["/"])
    tree.upsert(conn, given_nodes)
    conn.commit()
    for path in ("/", parent):
        expected = [each for each in sorted(model.nodes) if parent_of(each) == path]
        found = asyncio.run(_all_children(database_url, path, limit))
        assert found == (expected if path in model.nodes or path == "/" else None)


async def _all_children(database_url: str, path: str, limit: int) -> list[str] | None:
    found: list[str] = []
    async with await psycopg.AsyncConnection.connect(database_url) as conn:
        while True:
            after = found[-1].rpartition("/")[2] if found else None
            page = await list_children(conn, path, after=after, limit=limit)
            if page is None:
                return None
            found += [child.path for child in page]
            if len(page) < limit:
                return found


def test_the_hash_of_a_part_ignores_the_rest(conn: psycopg.Connection) -> None:
    tree.upsert(conn, [Node("/a/x", "page"), Node("/a", "page")])
    before = tree.content_hash(conn, "/a")
    tree.upsert(conn, [Node("/a-b", "page"), Node("/a0", "page")])
    assert tree.content_hash(conn, "/a") == before
    tree.upsert(conn, [Node("/a/y", "page")])
    assert tree.content_hash(conn, "/a") != before


def test_r23_importer_writes_and_exporter_only_reads(conn: psycopg.Connection) -> None:
    conn.execute(f"SET LOCAL ROLE {IMPORTER}")
    tree.replace(conn, "/a", [Node("/a/b", "page")])
    tree.delete(conn, ["/a/b"])
    conn.execute(f"SET LOCAL ROLE {EXPORTER}")
    assert [node.path for node in tree.stream(conn, "/")] == ["/a"]
    assert tree.content_hash(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tree.upsert(conn, [Node("/c", "page")])


def test_several_large_replacements_in_one_transaction(conn: psycopg.Connection) -> None:
    properties = '{"text": "' + "x" * 5_000 + '"}'
    for root, size in (("/a", 3_000), ("/b", 2_500), ("/a", 2_100)):
        tree.replace(
            conn, root, (Node(f"{root}/{i % 7}/{i}", "page", properties) for i in range(size))
        )
    found = [node.path for node in tree.stream(conn, "/")]
    assert len(found) == 2_100 + 2_500 + 2 * 7 + 2
    assert found == sorted(found)


def test_r14_a_node_outside_the_replaced_path_is_refused(conn: psycopg.Connection) -> None:
    with pytest.raises(InvalidPath, match="not within"):
        tree.replace(conn, "/content", [Node("/content-secret/a", "page")])


def test_large_properties_come_back_whole(conn: psycopg.Connection) -> None:
    large = [Node(f"/big/{i}", "page", '{"text": "' + str(i) * 900_000 + '"}') for i in range(9)]
    tree.upsert(conn, large)
    assert list(tree.stream(conn, "/big"))[1:] == large


@pytest.mark.parametrize("rows", [0, 1_000, 100_000])
def test_folders_are_looked_up_in_the_index_however_few_nodes_there_were(
    conn: psycopg.Connection, rows: int
) -> None:
    """A worker's prepared statement keeps the plan that it got while the tree was small."""
    conn.execute(
        "INSERT INTO content.node (path, type, properties, binaries) "
        "SELECT '/site/p' || n, 'page', '{}', '{}' FROM generate_series(1, %s) AS n",
        (rows,),
    )
    conn.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    statement = tree.ADD_FOLDERS.replace("%b::text[]", "$1").replace("%s", "$2")
    conn.execute(f"PREPARE add_folders (text[], text) AS {statement}")
    plan = conn.execute("EXPLAIN EXECUTE add_folders (ARRAY['/site', '/other'], 'folder')")
    lines = [line for (line,) in plan.fetchall()]
    assert any("on node present" in line and "Index" in line for line in lines), lines
    assert not any("Seq Scan on node" in line for line in lines), lines


def test_a_stream_that_is_abandoned_says_nothing_to_the_server_later(
    conn: psycopg.Connection,
) -> None:
    """The collector ends it wherever it likes: a CLOSE there would abort somebody's transaction."""
    tree.upsert(conn, [Node(f"/a/{number}", "page") for number in range(200)])
    conn.commit()
    abandoned: list[Any] = [tree.stream(conn, "/a")]
    assert next(abandoned[0]).path == "/a"
    assert next(abandoned[0]).path == "/a/0"
    abandoned.append(abandoned)  # a cycle, as a traceback makes one
    conn.commit()
    assert conn.execute("SELECT 1").fetchone() == (1,)
    del abandoned
    gc.collect()
    assert conn.execute("SELECT 2").fetchone() == (2,)
