"""The author's tree, reached by its database and its blob store."""

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from psycopg import Connection

from packhorse.blobs.api import BlobMissing, BlobStore, binary_key
from packhorse.blobs.digest import Verified
from packhorse.bookkeeping.audit_rows import write_act_of
from packhorse.content import tree
from packhorse.content.node import Binary, Node, parent_of
from packhorse.content.rows import format_binaries
from packhorse.db.metadata import BOOKKEEPER, EXPORTER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import of_writing
from packhorse.jobs.content_changes.recording import record_watched
from packhorse.jobs.content_changes.watches import list_watches
from packhorse_services.content.transfer.file_nodes import WRITE_FILES
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
        data = Binary(DATA, sha256, length, media_type_of(path))
        if existing is not None and existing.type == FILE and data in existing.binaries:
            return None, length  # no new reference: nothing is written
        if content is not None:
            small[binary_key(sha256)] = content
        else:
            self.put_content(entry, sha256)
        return Node(path, FILE, binaries=(data,)), length

    def finish(self, batch: ImportBatch, stored: Stored) -> None:
        """Write the files and folders of a batch in one transaction."""
        paths = [node.path for node in stored.nodes]
        if not paths and not batch.folders:
            return
        with self._writing(paths, batch.folders):
            tree.add_folders(self._conn, [*batch.folders, *map(parent_of, paths)])
            binaries = [format_binaries(node.binaries) for node in stored.nodes]
            self._conn.execute(WRITE_FILES, (FILE, paths, binaries))

    @contextmanager
    def _writing(self, nodes: Sequence[str], folders: Collection[str]) -> Iterator[None]:
        """Open the transaction that writes these, and note last what it has done."""
        with self._conn.transaction():
            self._conn.execute(tree.SHAPE_KEPT)
            self._conn.execute(f"SET LOCAL ROLE {IMPORTER}")
            watches = list_watches(self._conn)
            present = tree.present(self._conn, [*nodes, *folders]) if watches else {}
            yield
            made = [path for path in folders if path not in present]
            record_watched(self._conn, watches, [*of_writing(present, [*nodes, *made], (), {})])
            self._note(nodes, folders)

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
        if nodes:
            with self._writing([node.path for node in nodes], ()):
                tree.upsert(self._conn, nodes)

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
