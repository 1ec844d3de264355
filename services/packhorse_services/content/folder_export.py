"""A part of the tree into a new folder: files byte by byte, nothing outside it."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from psycopg import Connection

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore, binary_key
from packhorse.blobs.digest import Verified
from packhorse.content import tree
from packhorse.content.node import ROOT, Binary, InvalidPath, Node, check_path
from packhorse.db.metadata import EXPORTER
from packhorse.errors import Permanent
from packhorse_services.content.folder_import import DATA, FILE, Counts

_THREADS = 4
_WAITING = 64
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNWRITABLE = (OSError, ValueError, BlobMissing, BlobCorrupt, InvalidPath)


class NotExportable(Permanent):
    """The export can't be made; the text says why."""


class FolderExport:
    """One export from one snapshot; `report` and `refuse` as for an import.

    A node with the binary `data` becomes a file, every other node a folder. Nodes that hold more
    than that count as skipped, for the rest has no place in a folder.
    """

    def __init__(
        self,
        conn: Connection,
        blobs: BlobStore,
        target: Path,
        *,
        report: Callable[[Counts], None],
        refuse: Callable[[str, str], None],
    ) -> None:
        self._conn, self._blobs, self._target = conn, blobs, target
        self._report, self._refuse = report, refuse
        self._waiting: deque[tuple[Node, Binary, Future[None]]] = deque()
        self.counts = Counts()

    def run(self, path: str) -> Counts:
        """Export the subtree of `path`. Raises `NotExportable`, and what the stores raise."""
        base = check_path(path)
        self._prepare()
        with (
            self._conn.transaction(),
            ThreadPoolExecutor(_THREADS, thread_name_prefix="export") as workers,
        ):
            self._conn.execute(f"SET LOCAL ROLE {EXPORTER}")
            for node in tree.stream(self._conn, base):
                self._export(node, base, workers)
                self._finish(_WAITING)
            self._finish(0)
        if self.counts == Counts():
            raise NotExportable(f"there is nothing at {path!r}")
        return self.counts

    def _prepare(self) -> None:
        try:
            self._target.mkdir(parents=True, exist_ok=True)
            empty = not any(self._target.iterdir())
        except OSError as error:
            raise NotExportable(f"{self._target} can't be written: {error.strerror}") from error
        if not empty:
            raise NotExportable(f"{self._target} is not empty; name a new folder")

    def _export(self, node: Node, base: str, workers: ThreadPoolExecutor) -> None:
        """Make the folder, or have the file written; what lies above it has come before it."""
        data = next((binary for binary in node.binaries if binary.name == DATA), None)
        self.counts.skipped += _holds_more(node)
        try:
            target = self._place(node.path, base, is_file=data is not None)
            if data is None:
                target.mkdir(exist_ok=node.path == base)
                self.counts.folders += 1
        except _UNWRITABLE as error:
            self._count_refused(node.path, str(error))
            return
        if data is not None:
            self._waiting.append((node, data, workers.submit(self._write, data, target)))

    def _place(self, path: str, base: str, *, is_file: bool) -> Path:
        """Return where a node goes, which is inside the target whatever its path says."""
        names = check_path(path)[len(base.rstrip("/")) :].split("/")[1:]
        if not names and is_file:
            names = [base.rpartition("/")[2]]
        return self._target.joinpath(*names) if path != ROOT else self._target

    def _write(self, data: Binary, target: Path) -> None:
        descriptor = os.open(target, _CREATE, 0o666)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123
                chunks = self._blobs.get(binary_key(data.sha256))
                file.writelines(Verified(chunks, sha256=data.sha256, length=data.length))
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def _finish(self, left: int) -> None:
        """Wait until at most `left` files are being written."""
        while len(self._waiting) > left:
            node, data, written = self._waiting.popleft()
            try:
                written.result()
                self.counts.files += 1
                self.counts.bytes += data.length
            except _UNWRITABLE as error:
                self._count_refused(node.path, str(error))
            self._report(self.counts)

    def _count_refused(self, path: str, reason: str) -> None:
        self.counts.refused += 1
        self._refuse(path, reason)


def _holds_more(node: Node) -> bool:
    binaries = [binary.name for binary in node.binaries]
    plain = (FILE, [DATA]) if binaries else (tree.FOLDER, [])
    return (node.type, binaries) != plain or node.properties != "{}"
