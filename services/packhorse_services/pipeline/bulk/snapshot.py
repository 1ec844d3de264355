"""One snapshot of the author, which a session of ours holds and other sessions read."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, IsolationLevel, sql

from packhorse.content.node import ROOT, Node
from packhorse.content.parts import SubtreePart
from packhorse.content.rows import COLUMNS, node_of
from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.packages.build import PathMissing
from packhorse_services.pipeline.bulk.plan import condition
from packhorse_services.pipeline.databases import author_away, unusable
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused

_HELD_MS = 300_000
"""How long the snapshot outlives a driver that has stopped asking for it."""
_FETCH_SIZES = 5_000
_FETCH_NODES = 50
"""Nodes may be a megabyte each."""

_cursor_numbers = count()

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The number of the last package that the author had made when a snapshot was taken (R6)."""

    epoch: int
    sequence: int


class AuthorSnapshot:
    """The author's content as one transaction sees it; several threads may use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.seen = _seen(connection)
        act_as(connection, EXPORTER)
        row: Any = connection.execute(
            "SELECT pg_export_snapshot(), (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ).fetchone()
        self.name: str = row[0]
        """What `SET TRANSACTION SNAPSHOT` takes, as long as this one is open."""
        self.taken_ms: int = row[1]

    def sizes(self, deep_path: str) -> Iterator[tuple[str, int]]:
        """Yield path and size, in bytes as the database stores them, of the subtree's nodes.

        In path order, in constant memory. Raises `PathMissing` when the path is not there.
        """
        columns = (
            "path, octet_length(path) + octet_length(type) "
            "+ pg_column_size(properties) + pg_column_size(binaries)"
        )
        part = SubtreePart.whole(deep_path)
        yield from _beginning(deep_path, self._rows(columns, part, _FETCH_SIZES))

    def nodes(self, deep_path: str, part: SubtreePart) -> Iterator[Node]:
        """Yield the nodes of a part in path order, in constant memory.

        Raises `PathMissing` when the part holds the deep path itself and that is not there.
        """
        rows = self._rows(COLUMNS, part, _FETCH_NODES)
        if part.holds_top:
            rows = _beginning(deep_path, rows)
        yield from map(node_of, rows)

    def keep(self) -> None:
        """Say that the snapshot is still wanted. Raises `TaskFailed` when it is gone."""
        try:
            self._connection.execute("SELECT")
        except psycopg.Error as error:
            raise TaskFailed(
                "the author's database has ended the snapshot; run it again"
            ) from error

    def _rows(self, columns: LiteralString, part: SubtreePart, fetch: int) -> Iterator[Row]:
        query = sql.SQL("SELECT {} FROM content.node WHERE {} ORDER BY path")
        with self._connection.cursor(name=f"packhorse_bulk_{next(_cursor_numbers)}") as cursor:
            cursor.execute(query.format(sql.SQL(columns), condition(part)))
            while rows := cursor.fetchmany(fetch):
                yield from rows


@contextmanager
def author_snapshot(database_url: str) -> Iterator[AuthorSnapshot]:
    """Take a snapshot that lasts as long as the block.

    Raises `TaskFailed` when the database is away, also inside the block, and `TaskRefused` when the
    URL names none of ours, and for an author that no publisher has ever worked for.
    """
    timeouts = Timeouts(idle_in_transaction_ms=_HELD_MS)
    try:
        with closing(connect(database_url, "packhorse bulk", timeouts=timeouts)) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield AuthorSnapshot(connection)
    except psycopg.Error as error:
        raise unusable(author_away(error), error) from error


def _seen(connection: Connection) -> Seen:
    """Read the last number, with the first query of the transaction: it takes the snapshot."""
    act_as(connection, BOOKKEEPER)
    row = connection.execute("SELECT epoch, sequence FROM bookkeeping.slot").fetchone()
    if row is None:
        raise TaskRefused("no publisher has worked for this author yet; start one first")
    return Seen(*row)


def _beginning(deep_path: str, rows: Iterator[Row]) -> Iterator[Row]:
    first = next(rows, None)
    if first is None or deep_path not in (ROOT, first[0]):
        raise PathMissing(deep_path)
    yield first
    yield from rows
