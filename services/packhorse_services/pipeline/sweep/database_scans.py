"""Databases as sources: the nodes of a repository, and what is on its way to the journal.

A repository is read by ranges of blocks in one snapshot that all tasks share, so that a reference
that moves from one node to another in one transaction is seen at one of them.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from packhorse.blobs.open import open_blobs
from packhorse.bookkeeping import outbox_view, stored_packages
from packhorse.content import scan
from packhorse.content.rows import parse_binaries
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError
from packhorse.wire.package_codec import decode_stored_package
from packhorse_services.pipeline.engine.databases import AUTHOR, export_snapshot, reading
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.sweep.log_scan import of_package
from packhorse_services.pipeline.sweep.work import FindingKind, Found, evenly, once, references

_BLOCKS = 1_000
_LAST_BLOCK = 2**32 - 2


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
            rows = scan.binaries_in_blocks(connection, *piece)
            yield from once(_of_nodes(rows, self.name))


@dataclass(frozen=True)
class OutboxScan:
    """Reads what the author's publishers have committed and not yet appended."""

    database_url: str
    blobs_url: str

    def __call__(self, _: Any, /) -> Iterator[Found]:
        """Yield what waiting packages refer to, and every stored package that is known."""
        with (
            closing(open_blobs(self.blobs_url)) as blobs,
            reading(self.database_url, AUTHOR) as connection,
        ):
            act_as(connection, BOOKKEEPER)
            for key in stored_packages.keys(connection):
                yield Found(FindingKind.NAME, key)
            for value in outbox_view.waiting(connection):
                message = decode_stored_package(value)
                yield from once(of_package(message, blobs))


@contextmanager
def shared_snapshot(database_url: str, name: str) -> Iterator[tuple[str, int]]:
    """Keep one state of a database readable; gives its id and how many blocks nodes take."""
    with reading(database_url, name) as connection:
        blocks = scan.count_blocks(connection)
        yield export_snapshot(connection), blocks


def block_ranges(blocks: int, parts: int) -> list[tuple[int, int]]:
    """Return the pieces for `NodeScan`; the last one has no end, so that nothing is left out."""
    ranges = evenly(0, max(blocks, 1), parts, _BLOCKS)
    return [*ranges[:-1], (ranges[-1][0], _LAST_BLOCK)]


def _of_nodes(rows: Iterator[tuple[str, str]], name: str) -> Iterator[Found]:
    for path, binaries in rows:
        try:
            yield from references(parse_binaries(binaries))
        except PackhorseError as error:
            raise TaskRefused(f"the node {path!r} of {name} can't be read: {error}") from error
