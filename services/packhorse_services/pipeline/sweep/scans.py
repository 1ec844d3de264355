"""The sources of a mark: the log, databases, and the blob store, each read by pieces.

Of the log these are the packages in a range of offsets; of the blob store listings by shard, and
the nodes in stored bodies and parts. A repository is read by ranges of blocks in one snapshot that
all tasks share, so that a reference that moves from one node to another in one transaction is seen
at one of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from packhorse.blobs.api import BlobMissing, BlobStore, StoredBlob, package_key
from packhorse.blobs.open import open_blobs
from packhorse.bookkeeping import outbox_view, stored_packages
from packhorse.content import scan
from packhorse.content.node import Node
from packhorse.content.rows import parse_binaries
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import act_as
from packhorse.errors import PackhorseError, Permanent
from packhorse.messaging.api import Reader, Record
from packhorse.messaging.open import open_journal
from packhorse.messaging.reading import LogCut, read_to
from packhorse.packages.body import unpack
from packhorse.packages.compression import decompress_up_to
from packhorse.packages.format import decoded, messages_of
from packhorse.packages.limits import LIMITS, PACKAGE_TYPE, PART_TYPE, TARGETED_TYPE, PackageRefused
from packhorse.snapshots.parts import changes_of
from packhorse.snapshots.snapshot import is_part
from packhorse.wire.messages import PackageMessage
from packhorse.wire.package_codec import decode_package, decode_stored_package
from packhorse_services.pipeline.engine.databases import AUTHOR, export_snapshot, reading
from packhorse_services.pipeline.errors import TaskFailed, TaskRefused
from packhorse_services.pipeline.sweep.work import FindingKind, Found, evenly, once, references

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class LogScan:
    """Reads the packages from one offset up to, not including, another."""

    journal_url: str
    blobs_url: str
    topic: str

    def __call__(self, piece: tuple[int, int], /) -> Iterator[Found]:
        """Yield what the packages refer to, and the stored bodies that they name."""
        with (
            closing(open_journal(self.journal_url, client_name="packhorse-mark")) as journal,
            closing(open_blobs(self.blobs_url)) as blobs,
            journal.reader(self.topic, piece[0], partition=0) as reader,
        ):
            for records in _record_batches(reader, piece[1]):
                yield from once(_of_records(records, piece[1], blobs))


def _of_package(message: PackageMessage, blobs: BlobStore) -> Iterator[Found]:
    """Yield what a package refers to. A stored body is read where it is stored.

    Raises `PackageRefused` for a package of a type that this build does not know.
    """
    if message.package_type not in (PACKAGE_TYPE, PART_TYPE, TARGETED_TYPE):
        raise PackageRefused(f"unknown package type {message.package_type[:80]!r}")
    body = message.body
    if body is not None and body.inline is None:
        yield Found(FindingKind.NAME, package_key(message.entry.package_id))
        yield Found(FindingKind.IN_LOG, package_key(message.entry.package_id))
        return
    for node in unpack(message, blobs):
        yield from references(node.binaries)


def _of_records(records: Sequence[Record], end: int, blobs: BlobStore) -> Iterator[Found]:
    for record in records:
        if record.offset >= end:
            return
        try:
            yield from _of_package(decode_package(record.headers, record.value), blobs)
        except PackhorseError as error:
            raise TaskRefused(
                f"the package at offset {record.offset} can't be read, so nobody knows what it "
                f"needs; upgrade this build, or wait until the log has forgotten it: {error}"
            ) from error


def _record_batches(reader: Reader, end: int) -> Iterator[Sequence[Record]]:
    try:
        yield from read_to(reader, end, patience_s=_PATIENCE_S)
    except LogCut as error:
        raise TaskFailed("the log was cut while it was read; make a new mark") from error


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
                yield from once(_of_package(message, blobs))


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


Shards = Sequence[str]
PACKAGES, PARTS = "packages", "snapshots"


def shard_groups(parts: int) -> list[list[str]]:
    """Return the 256 shards in up to `parts` groups, the pieces of the scans here."""
    shards = [f"{number:02x}" for number in range(256)]
    return [shards[start::parts] for start in range(min(parts, len(shards)))]


@dataclass(frozen=True)
class BlobListing:
    """Lists some shards of the kinds of blobs that may go."""

    blobs_url: str

    def __call__(self, shards: Shards, /) -> Iterator[StoredBlob]:
        """Yield the shards' blobs."""
        with closing(open_blobs(self.blobs_url)) as blobs:
            for shard in shards:
                for kind in ("binaries", "packages"):
                    yield from blobs.list(f"{kind}/{shard}/")


@dataclass(frozen=True)
class StoredBodies:
    """A `BlobScan` of stored bodies, or of snapshots' parts, whoever may need them."""

    blobs_url: str
    kind: str

    def listed(self, shards: Shards, /) -> Iterator[StoredBlob]:
        """Yield those in some shards."""
        with closing(open_blobs(self.blobs_url)) as blobs:
            for shard in shards:
                found = blobs.list(f"{self.kind}/{shard}/")
                yield from (one for one in found if self.kind == PACKAGES or is_part(one.key))

    def read(self, blobs: Iterator[StoredBlob], /) -> Iterator[tuple[StoredBlob, Found]]:
        """Yield what their nodes refer to.

        A blob among the packages that is none, or is damaged, is `UNREADABLE`: nobody can import
        it, so it needs nothing. Should the log have it, it counts as a body that was not read.
        """
        with closing(open_blobs(self.blobs_url)) as store:
            for blob in blobs:
                for found in once(self._inside(blob.key, store)):
                    yield blob, found

    def _inside(self, key: str, blobs: BlobStore) -> Iterator[Found]:
        try:
            for node in _nodes(key, blobs):
                yield from references(node.binaries)
        except BlobMissing:
            if blobs.head(key) is not None:
                raise
            return  # removed since it was listed: nobody reads it any more
        except PackhorseError as error:
            if self.kind != PACKAGES or not _is_none(error):
                raise TaskRefused(
                    f"{key} can't be read, so nobody knows what it needs: {error}"
                ) from error
            yield Found(FindingKind.UNREADABLE, key)
        else:
            yield Found(FindingKind.READ, key)


def _nodes(key: str, blobs: BlobStore) -> Iterator[Node]:
    """Yield the nodes of a blob of which only the key is known, in constant memory.

    The format is verified to its end; a digest is not, since nobody has said one. Who imports
    nodes uses `packages.body` or `snapshots.parts.read_part`.
    """
    messages = messages_of(decompress_up_to(blobs.get(key), LIMITS.content_bytes))
    if is_part(key):
        return (change.now for change in changes_of(messages) if change.now)
    return map(decoded, messages)


def _is_none(error: PackhorseError) -> bool:
    """Return whether no build reads such bytes; one that allows more may read what is refused."""
    return isinstance(error, Permanent) and not isinstance(error, PackageRefused)
