"""Databases as sources: the nodes of a repository, and what is on its way to the journal.

A repository is read by ranges of blocks in one snapshot that all tasks share, so that a reference
that moves from one node to another in one transaction is seen at one of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from packhorse.blobs.open import open_blobs
from packhorse.content.rows import parse_binaries
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError
from packhorse.wire.messages import PackageMessage
from packhorse.wire.package_codec import decode_package
from packhorse.wire.record import type_headers
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.repositories import export_snapshot, reading
from packhorse_services.pipeline.sweep.log_scan import of_package
from packhorse_services.pipeline.sweep.work import Found, Kind, evenly, once, references

_FETCH = 2_000
_BLOCKS = 1_000
_LAST_BLOCK = 2**32 - 2

_NODES = """
    SELECT path, binaries::text FROM content.node
    WHERE ctid >= %s::tid AND ctid < %s::tid AND binaries <> '{}'
"""


@dataclass(frozen=True)
class NodeScan:
    """Reads the nodes in a range of blocks, as an exported snapshot shows them."""

    database_url: str
    name: str
    snapshot: str

    def __call__(self, piece: tuple[int, int], /) -> Iterator[Found]:
        """Yield what the nodes refer to."""
        with reading(self.database_url, self.name, self.snapshot) as connection:
            act_as(connection, EXPORTER)
            yield from once(_of_nodes(_rows(connection, _NODES, *_tids(piece)), self.name))


@dataclass(frozen=True)
class OutboxScan:
    """Reads what the author's publishers have committed and not yet appended."""

    database_url: str
    blobs_url: str

    def __call__(self, _: Any, /) -> Iterator[Found]:
        """Yield what waiting packages refer to, and every stored package that is known."""
        blobs = open_blobs(self.blobs_url)
        try:
            with reading(self.database_url, "the author") as connection:
                act_as(connection, BOOKKEEPER)
                for (key,) in _rows(connection, "SELECT key FROM bookkeeping.stored_package"):
                    yield Found(Kind.NAME, key)
                waiting = "SELECT value FROM bookkeeping.outbox WHERE log_offset IS NULL"
                for (value,) in _rows(connection, waiting):
                    message = decode_package(type_headers(PackageMessage), value)
                    yield from once(of_package(message, blobs))
        finally:
            blobs.close()


@contextmanager
def shared_snapshot(database_url: str, name: str) -> Iterator[tuple[str, int]]:
    """Keep one state of a database readable; gives its id and how many blocks nodes take."""
    with reading(database_url, name) as connection:
        row: Any = connection.execute(
            "SELECT pg_relation_size('content.node') / current_setting('block_size')::int"
        ).fetchone()
        yield export_snapshot(connection), row[0]


def block_ranges(blocks: int, parts: int) -> list[tuple[int, int]]:
    """Return the pieces for `NodeScan`; the last one has no end, so that nothing is left out."""
    ranges = evenly(0, max(blocks, 1), parts, _BLOCKS)
    return [*ranges[:-1], (ranges[-1][0], _LAST_BLOCK)]


def _rows(connection: psycopg.Connection, query: str, *given: str) -> Iterator[tuple[Any, ...]]:
    with connection.cursor(name="packhorse_mark") as cursor:
        cursor.execute(query.encode(), given)
        while rows := cursor.fetchmany(_FETCH):
            yield from rows


def _of_nodes(rows: Iterator[tuple[Any, ...]], name: str) -> Iterator[Found]:
    for path, binaries in rows:
        try:
            yield from references(parse_binaries(binaries))
        except PackhorseError as error:
            raise TaskRefused(f"the node {path!r} of {name} can't be read: {error}") from error


def _tids(piece: tuple[int, int]) -> tuple[str, str]:
    return f"({piece[0]},0)", f"({piece[1]},0)"
