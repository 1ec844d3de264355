"""Many nodes at once: what COPY brings in is what was given, whatever characters it has."""

import json
from collections.abc import Iterator

import psycopg
import pytest

from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse.content.tree import copy_in
from packhorse.db.connect import connect
from packhorse.db.metadata import IMPORTER
from packhorse.db.roles import act_as

STRANGE = [
    Node("/a", "page", json.dumps({"text": 'tab\t newline\n quote" \\ \\. \\N é \U0001f40e'})),
    Node("/a/\\.", "page", '{"n": 12345678901234567890.5}'),
    Node("/a/\\N", "type with \t and \\", '{"\\\\": [null, true, "\\t"]}'),
    Node("/b", "page", "{}", (Binary("data \\", "0" * 64, 2**40, "text/plain; x=\"\\\""),)),
]  # fmt: skip


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with connect(database_url, "tests") as connection:
        act_as(connection, IMPORTER)
        yield connection


def test_what_is_copied_in_is_what_was_given(connection: psycopg.Connection) -> None:
    assert copy_in(connection, STRANGE) == 4
    copied = tree.content_hash(connection)
    assert [node.path for node in tree.stream(connection, "/")] == [node.path for node in STRANGE]
    tree.delete(connection, ["/"])
    tree.upsert(connection, STRANGE)
    assert tree.content_hash(connection) == copied


def test_many_and_large_nodes_come_in_batches(connection: psycopg.Connection) -> None:
    def nodes() -> Iterator[Node]:
        for number in range(11_000):
            idle.add(connection.info.transaction_status.name)
            text = "x" * (1_000_000 if number % 2_000 == 0 else 10)
            yield Node(f"/n{number:06d}", "page", json.dumps({"text": text}))

    idle: set[str] = set()
    assert copy_in(connection, nodes()) == 11_000
    assert idle == {"INTRANS"}, "nothing is under way while nodes are read"
    assert sum(1 for _ in tree.stream(connection, "/")) == 11_000


def test_a_path_that_is_there_is_refused(connection: psycopg.Connection) -> None:
    tree.upsert(connection, [Node("/a", "page")])
    with pytest.raises(psycopg.errors.UniqueViolation):
        copy_in(connection, [Node("/a", "page")])
