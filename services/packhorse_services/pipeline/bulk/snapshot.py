"""One snapshot of the author, which a session of ours holds and other sessions read in parts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg import Connection

from packhorse.bookkeeping import outbox_view
from packhorse.content import scan
from packhorse.content.node import ROOT, Node
from packhorse.content.parts import SubtreePart
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.db.rows import now_ms
from packhorse.packages.build import PathMissing
from packhorse_services.pipeline.engine.databases import AUTHOR, export_snapshot, reading
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A range of a subtree's paths, and how many nodes the snapshot has in it."""

    number: int
    range_from: str
    """Empty: from the beginning, which is the node of the deep path itself."""
    range_to: str
    """Not in it; empty: to the end."""
    nodes: int

    def within(self, deep_path: str) -> SubtreePart:
        """Return the part of the subtree that it is."""
        return SubtreePart.between(deep_path, self.range_from, self.range_to)


def cut(
    sizes: Iterable[tuple[str, int]], *, part_nodes: int, part_bytes: int
) -> Iterator[PlannedPart]:
    """Yield the parts of a subtree whose nodes, in path order, have these sizes in bytes.

    Each has at most `part_nodes` nodes and `part_bytes` bytes, or a single larger node. Together
    they are all of the subtree: the first one's range and the last one's are open.
    """
    number, start, nodes, size = 0, "", 0, 0
    for path, length in sizes:
        if nodes and (nodes == part_nodes or size + length > part_bytes):
            yield PlannedPart(number, start, path, nodes)
            number, start, nodes, size = number + 1, path, 0, 0
        nodes += 1
        size += length
    if nodes:
        yield PlannedPart(number, start, "", nodes)


_HELD_MS = 300_000
"""How long the snapshot outlives a driver that has stopped asking for it."""

_Read = TypeVar("_Read")


class AuthorSnapshot:
    """The author's content as one transaction sees it; several threads may use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        idle = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
        connection.execute(idle, (str(_HELD_MS),))
        self.seen_epoch, self.seen_sequence = _seen(connection)
        act_as(connection, EXPORTER)
        self.name = export_snapshot(connection)
        """What `SET TRANSACTION SNAPSHOT` takes, as long as this one is open."""
        self.taken_ms = now_ms(connection)

    def sizes(self, deep_path: str) -> Iterator[tuple[str, int]]:
        """Yield path and size, in bytes as the database stores them, of the subtree's nodes.

        In path order, in constant memory. Raises `PathMissing` when the path is not there.
        """
        found = scan.sizes(self._connection, SubtreePart.whole(deep_path))
        yield from _beginning(deep_path, found, _path_of_size)

    def nodes(self, deep_path: str, part: SubtreePart) -> Iterator[Node]:
        """Yield the nodes of a part in path order, in constant memory.

        Raises `PathMissing` when the part holds the deep path itself and that is not there.
        """
        found = scan.nodes(self._connection, part)
        yield from _beginning(deep_path, found, _path_of) if part.holds_top else found

    def keep(self) -> None:
        """Say that the snapshot is still wanted. Raises `TaskFailed` when it is gone."""
        try:
            self._connection.execute("SELECT")
        except psycopg.Error as error:
            raise TaskFailed(
                "the author's database has ended the snapshot; run it again"
            ) from error


@contextmanager
def author_snapshot(database_url: str) -> Iterator[AuthorSnapshot]:
    """Take a snapshot that lasts as long as the block.

    Raises `TaskFailed` when the database is away, also inside the block, and `TaskRefused` when the
    URL names none of ours, and for an author that no publisher has ever worked for.
    """
    with reading(database_url, AUTHOR) as connection:
        yield AuthorSnapshot(connection)


def _seen(connection: Connection) -> tuple[int, int]:
    """Read epoch and sequence of the last package that the author had made by then (R6)."""
    act_as(connection, BOOKKEEPER)
    number = outbox_view.last_number(connection)
    if number is None:
        raise TaskRefused("no publisher has worked for this author yet; start one first")
    return number


def _path_of(node: Node) -> str:
    return node.path


def _path_of_size(size: tuple[str, int]) -> str:
    return size[0]


def _beginning(
    deep_path: str, found: Iterator[_Read], path_of: Callable[[_Read], str]
) -> Iterator[_Read]:
    first = next(found, None)
    if first is None or deep_path not in (ROOT, path_of(first)):
        raise PathMissing(deep_path)
    yield first
    yield from found
