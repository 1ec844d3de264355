"""A folder or archive into the author's tree: many threads read and store, one writes nodes.

A batch's binaries are durable before the transaction that refers to them, and a file whose node
says the same already costs nothing but being read: an import that was killed is run again.
"""

import hashlib
import mimetypes
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from psycopg import Connection

from packhorse.blobs.api import CHUNK_BYTES, BlobCorrupt, BlobStore, binary_key
from packhorse.content import tree
from packhorse.content.node import ROOT, Binary, InvalidPath, Node, check_path
from packhorse.content.shape import SHAPE_KEPT
from packhorse.db.metadata import IMPORTER
from packhorse_services.content.sources import Entry, NotImportable, Source

FILE = "file"
DATA = "data"
"""The binary that holds a file's bytes."""

_THREADS = 4
_BATCH_FILES = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_SMALL_BYTES = 256 * 1024
_UNREADABLE = (OSError, NotImportable, BlobCorrupt, zipfile.BadZipFile, zlib.error, EOFError)


@dataclass(slots=True)
class Counts:
    """What has become of the entries so far."""

    files: int = 0
    folders: int = 0
    unchanged: int = 0
    skipped: int = 0
    refused: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Batch:
    files: dict[str, Entry] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Stored:
    """What a worker has made of a batch: nodes to write, and what went wrong."""

    nodes: list[Node]
    unchanged: int
    bytes: int
    refused: list[tuple[str, str]]


class FolderImport:
    """One import; `report` is called after each batch, `refuse` with a name and a reason."""

    def __init__(
        self,
        conn: Connection,
        blobs: BlobStore,
        at: str,
        *,
        report: Callable[[Counts], None],
        refuse: Callable[[str, str], None],
    ) -> None:
        self._conn, self._blobs, self._base = conn, blobs, "" if at == ROOT else check_path(at)
        self._report, self._refuse = report, refuse
        self.counts = Counts()

    def run(self, source: Source) -> Counts:
        """Import everything. Raises what the database and the blob store raise."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="import") as workers:
            waiting: deque[tuple[_Batch, Future[_Stored]]] = deque()
            try:
                for batch in self._batches(source.entries()):
                    existing = self._existing(batch)
                    waiting.append((batch, workers.submit(self._store, batch, existing)))
                    if len(waiting) >= 2 * _THREADS:
                        self._finish(*waiting.popleft())
                while waiting:
                    self._finish(*waiting.popleft())
            finally:
                workers.shutdown(cancel_futures=True)
        return self.counts

    def _batches(self, entries: Iterable[Entry]) -> Iterator[_Batch]:
        """Group entries whose names are paths; a batch's small files fit into memory."""
        yield _Batch(folders=[self._base] if self._base else [])
        batch, size = _Batch(), 0
        for entry in entries:
            path = self._admit(entry)
            if path is None:
                continue
            if entry.open is None:
                batch.folders.append(path)
            else:
                batch.files[path] = entry
                size += min(entry.size, _SMALL_BYTES)
            if len(batch.files) + len(batch.folders) >= _BATCH_FILES or size >= _BATCH_BYTES:
                yield batch
                batch, size = _Batch(), 0
        yield batch

    def _admit(self, entry: Entry) -> str | None:
        """Return the node's path, or None once the reason was told."""
        if entry.skipped:
            self.counts.skipped += 1
            return None
        try:
            if entry.problem:
                raise NotImportable(entry.problem)
            return check_path(f"{self._base}/{entry.name}")
        except (NotImportable, InvalidPath) as error:
            self._count_refused(entry.name, str(error))
            return None

    def _existing(self, batch: _Batch) -> Mapping[str, Node]:
        with self._conn.transaction():
            return {node.path: node for node in tree.read(self._conn, list(batch.files))}

    def _store(self, batch: _Batch, existing: Mapping[str, Node]) -> _Stored:
        stored = _Stored([], 0, 0, [])
        small: dict[str, bytes] = {}
        for path, entry in batch.files.items():
            try:
                node, length = self._store_one(path, entry, existing.get(path), small)
            except _UNREADABLE as error:
                stored.refused.append((entry.name, f"can't be read: {error}"))
                continue
            if node is None:
                stored.unchanged += 1
            else:
                stored.nodes.append(node)
                stored.bytes += length
        if small:
            self._blobs.put_many(small)
        return stored

    def _store_one(
        self, path: str, entry: Entry, existing: Node | None, small: dict[str, bytes]
    ) -> tuple[Node | None, int]:
        """Store the bytes, or lay them into `small`; return the node, None if it is the same."""
        assert entry.open is not None  # noqa: S101 - batches hold folders apart
        with entry.open() as file:
            content = _read_small(file)
            sha256, length = _digest(content, file)
        node = _file_node(path, sha256, length, existing)
        if node == existing:
            return None, length  # no new reference: nothing is written
        self._renew_others(node, sha256)
        if len(content) == length:
            small[binary_key(sha256)] = content
        else:
            with entry.open() as file:
                self._blobs.put(binary_key(sha256), _chunks(file))
        return node, length

    def _renew_others(self, node: Node, sha256: str) -> None:
        """Renew what is written again as it was read: somebody may have let go of it since."""
        for binary in node.binaries:
            if binary.sha256 != sha256:
                self._blobs.renew(binary_key(binary.sha256))

    def _finish(self, batch: _Batch, storing: Future[_Stored]) -> None:
        """Write the nodes of a batch in one transaction, and count."""
        stored = storing.result()
        if stored.nodes or batch.folders:
            with self._conn.transaction():
                self._conn.execute(SHAPE_KEPT)
                self._conn.execute(f"SET LOCAL ROLE {IMPORTER}")
                tree.add_folders(self._conn, batch.folders)
                tree.upsert(self._conn, stored.nodes)
        self.counts.files += len(stored.nodes)
        self.counts.bytes += stored.bytes
        self.counts.unchanged += stored.unchanged
        self.counts.folders += len(batch.folders)
        for name, reason in stored.refused:
            self._count_refused(name, reason)
        self._report(self.counts)

    def _count_refused(self, name: str, reason: str) -> None:
        self.counts.refused += 1
        self._refuse(name, reason)


def _file_node(path: str, sha256: str, length: int, existing: Node | None) -> Node:
    """Return the file's node; what else a file's node holds already stays."""
    media_type = mimetypes.guess_type(path, strict=False)[0] or "application/octet-stream"
    data = Binary(DATA, sha256, length, media_type)
    if existing is None or existing.type != FILE:
        return Node(path, FILE, binaries=(data,))
    others = [binary for binary in existing.binaries if binary.name != DATA]
    return replace(existing, binaries=tuple(sorted([*others, data], key=lambda one: one.name)))


def _read_small(file: BinaryIO) -> bytes:
    """Return the file's beginning, which is all of a small file."""
    parts = []
    left = _SMALL_BYTES
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _digest(content: bytes, rest: BinaryIO) -> tuple[str, int]:
    """Return digest and length of what was read and of what follows."""
    digest, length = hashlib.sha256(content), len(content)
    for chunk in _chunks(rest):
        digest.update(chunk)
        length += len(chunk)
    return digest.hexdigest(), length


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")
