"""The author's tree, reached by its database and its blob store."""

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from psycopg import Connection

from packhorse.blobs.api import BlobMissing, BlobStore, binary_key
from packhorse.blobs.digest import Verified
from packhorse.bookkeeping.audit_rows import write_act_of
from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse.db.metadata import BOOKKEEPER, EXPORTER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import of_writing
from packhorse.jobs.content_changes.recording import record_watched
from packhorse.jobs.content_changes.watches import list_watches
from packhorse_services.content.transfer.folder_import import DATA, FILE, ImportBatch, Stored
from packhorse_services.content.transfer.sources import (
    UNREADABLE,
    SourceEntry,
    chunks_of,
    examined,
    media_type_of,
)


class LocalTree:
    """What folders are imported into and exported from, with the roles of both (R23)."""

    def __init__(self, conn: Connection, blobs: BlobStore) -> None:
        """Take a connection in autocommit mode."""
        self._conn, self._blobs = conn, blobs

    def read_existing(self, batch: ImportBatch) -> Mapping[str, Node]:
        """Return the nodes that are there already."""
        return self.existing(list(batch.files))

    def store(self, batch: ImportBatch, known: Mapping[str, Node]) -> Stored:
        """Store the bytes of what has changed."""
        stored = Stored()
        small: dict[str, bytes] = {}
        for path, entry in batch.files.items():
            try:
                node, length = self._store_one(path, entry, known.get(path), small)
            except UNREADABLE as error:
                stored.refused.append((entry.name, f"can't be read: {error}"))
                continue
            if node is None:
                stored.unchanged += 1
            else:
                stored.nodes.append(node)
                stored.files += 1
                stored.bytes += length
        if small:
            self._blobs.put_many(small)
        return stored

    def _store_one(
        self, path: str, entry: SourceEntry, existing: Node | None, small: dict[str, bytes]
    ) -> tuple[Node | None, int]:
        """Store the bytes, or lay them into `small`; return the node, None if it is the same."""
        content, sha256, length = examined(entry)
        node = _file_node(path, sha256, length, existing)
        if node == existing:
            return None, length  # no new reference: nothing is written
        self._renew_others(node, sha256)
        if content is not None:
            small[binary_key(sha256)] = content
        else:
            self.put_content(entry, sha256)
        return node, length

    def _renew_others(self, node: Node, sha256: str) -> None:
        """Renew what is written again as it was read: somebody may have removed it since."""
        for binary in node.binaries:
            if binary.sha256 != sha256:
                self._blobs.renew(binary_key(binary.sha256))

    def finish(self, batch: ImportBatch, stored: Stored) -> None:
        """Write the nodes of a batch in one transaction."""
        if stored.nodes or batch.folders:
            with self._conn.transaction():
                self._conn.execute(tree.SHAPE_KEPT)
                self._conn.execute(f"SET LOCAL ROLE {IMPORTER}")
                written = [node.path for node in stored.nodes]
                watches = list_watches(self._conn)
                present = tree.present(self._conn, [*written, *batch.folders]) if watches else {}
                tree.add_folders(self._conn, batch.folders)
                tree.upsert(self._conn, stored.nodes)
                made = [path for path in batch.folders if path not in present]
                changes = [*of_writing(present, [*written, *made], (), {})]
                record_watched(self._conn, watches, changes)
                self._note(written, batch.folders)

    def _note(self, files: Sequence[str], folders: Collection[str]) -> None:
        """Write who has imported a batch, in its transaction: the login is all that is known."""
        first = next(iter((*files, *folders)))
        members = {"operation": "import", "method": "IMPORT", "object": f"/content{first}"[:500]}
        members |= {"host": socket.gethostname()}
        act_as(self._conn, BOOKKEEPER)
        counts = {"files": len(files), "folders": len(folders)}
        write_act_of(self._conn, self._conn.info.user, {**members, **counts})

    def existing(self, paths: Sequence[str]) -> Mapping[str, Node]:
        """Return those of the nodes that are there."""
        with self._conn.transaction():
            return {node.path: node for node in tree.read(self._conn, list(paths))}

    def put_content(self, entry: SourceEntry, sha256: str) -> None:
        """Store a file's bytes, which have this SHA-256. Raises `UNREADABLE`."""
        if entry.open is not None:
            with entry.open() as file:
                self._blobs.put(binary_key(sha256), chunks_of(file))

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        """Write nodes, and the folders above them that are missing."""
        self.finish(ImportBatch(), Stored(nodes=list(nodes)))

    @contextmanager
    def nodes(self, path: str) -> Iterator[Iterator[Node]]:
        """Lend a node and all below it, of one snapshot."""
        with self._conn.transaction():
            self._conn.execute(f"SET LOCAL ROLE {EXPORTER}")
            yield tree.stream(self._conn, path)

    def contents(self, binaries: Sequence[Binary]) -> Mapping[str, bytes | Exception]:
        """Return small binaries by their SHA-256; is called by several threads."""
        return {binary.sha256: self._content(binary) for binary in binaries}

    def _content(self, binary: Binary) -> bytes | Exception:
        try:
            return b"".join(self.stream(binary))
        except (*UNREADABLE, BlobMissing) as error:
            return error

    def stream(self, binary: Binary) -> Iterator[bytes]:
        """Yield a binary's bytes, verified by the time that the last one comes."""
        chunks = self._blobs.get(binary_key(binary.sha256))
        return iter(Verified(chunks, sha256=binary.sha256, length=binary.length))


def _file_node(path: str, sha256: str, length: int, existing: Node | None) -> Node:
    """Return the file's node; what else a file's node holds already stays."""
    data = Binary(DATA, sha256, length, media_type_of(path))
    if existing is None or existing.type != FILE:
        return Node(path, FILE, binaries=(data,))
    others = [binary for binary in existing.binaries if binary.name != DATA]
    return replace(existing, binaries=tuple(sorted([*others, data], key=lambda one: one.name)))
